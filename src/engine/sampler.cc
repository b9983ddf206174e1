#include "engine/sampler.h"

#include "engine/form_mask.h"

namespace headrace {
namespace {

TokenLogprobs to_logprobs(const SampleResult& result) {
  TokenLogprobs out{.token = result.token, .logprob = result.logprob};
  out.top.reserve(result.top.size());
  for (const TokenLogprob& entry : result.top) out.top.emplace_back(entry.token, entry.logprob);
  return out;
}

// First index at or after `first` whose row is of another kind (or, for scoring, asks for another
// number of alternatives): a run of like rows is one op call.
size_t run_end(std::span<const LogitRow> rows, size_t first) {
  size_t last = first + 1;
  while (last < rows.size() && rows[last].samples == rows[first].samples &&
         (rows[first].samples || rows[last].slot == rows[first].slot)) {
    ++last;
  }
  return last;
}

}  // namespace

void Sampler::run(OpContext& context, std::span<const LogitRow> rows, ConstTensorView logits,
                  const SlotTable& slots, StepResult& result) {
  results_.assign(rows.size(), {});
  dead_ends_.assign(rows.size(), false);
  for (size_t first = 0; first < rows.size();) {
    const size_t last = run_end(rows, first);
    const auto part = rows.subspan(first, last - first);
    const ConstTensorView part_logits =
        logits.row_range(static_cast<int64_t>(first), static_cast<int64_t>(last - first));
    const std::span<SampleResult> part_results(results_.data() + first, last - first);
    if (rows[first].samples) {
      begin_rows(part.size());
      for (const LogitRow& row : part) {
        const bool dead_end = !allow(row, slots[row.slot], logits.columns());
        dead_ends_[first + parameters_.size()] = dead_end;
        parameters_.push_back(parameters(row, slots));
      }
      sample(context, {.logits = part_logits, .rows = parameters_, .results = part_results});
    } else {
      std::vector<TokenId> tokens;
      for (const LogitRow& row : part) tokens.push_back(row.scored);
      token_logprobs(context,
                     {.logits = part_logits,
                      .tokens = tokens,
                      .logprobs = slots[rows[first].slot].request->sampling.prompt_logprobs,
                      .results = part_results});
    }
    first = last;
  }
  for (size_t i = 0; i < rows.size(); ++i) {
    if (result.rows.empty() || result.rows.back().sequence != rows[i].sequence) {
      result.rows.push_back({.sequence = rows[i].sequence});
    }
    StepResult::Row& out = result.rows.back();
    out.dead_end = out.dead_end || dead_ends_[i];
    out.fault = out.fault || (results_[i].fault && !dead_ends_[i]);
    if (!rows[i].samples) {
      out.prompt_logprobs.push_back(to_logprobs(results_[i]));
      continue;
    }
    out.accepted.push_back(results_[i].token);
    if (slots[rows[i].slot].request->sampling.logprobs >= 0) {
      out.logprobs.push_back(to_logprobs(results_[i]));
    }
  }
}

void Sampler::begin_rows(size_t count) {
  parameters_.clear();
  banned_.clear();
  banned_.reserve(count);
  allowed_.clear();
  allowed_.reserve(count);
  biases_.clear();
  biases_.reserve(count);
}

std::span<const SampleResult> Sampler::propose(OpContext& context, std::span<const LogitRow> rows,
                                               ConstTensorView logits, const SlotTable& slots) {
  results_.assign(rows.size(), {});
  begin_rows(rows.size());
  for (const LogitRow& row : rows) {
    allowed_.emplace_back();
    parameters_.push_back(parameters(row, slots));
    keep_below(logits.columns(), parameters_.back());
    parameters_.back().logprobs = row.alternatives;
  }
  sample(context, {.logits = logits, .rows = parameters_, .results = results_});
  return results_;
}

// Of ids that a draft has no logits of nothing is said.
void Sampler::keep_below(int64_t vocabulary, SampleRow& row) {
  std::erase_if(banned_.back(), [&](TokenId token) { return token >= vocabulary; });
  row.banned = banned_.back();
  biases_.emplace_back(row.logit_bias.begin(), row.logit_bias.end());
  std::erase_if(biases_.back(), [&](const auto& bias) { return bias.first >= vocabulary; });
  row.logit_bias = biases_.back();
}

// False: its form leaves nothing to choose. The rows of a sequence come one behind the other.
bool Sampler::allow(const LogitRow& row, const Slot& slot, int64_t vocabulary) {
  allowed_.emplace_back();
  if (slot.matcher == nullptr) return true;
  if (row.ahead == 1) ahead_ = slot.matcher->clone();
  if (row.ahead > 0) {
    CHECK_MSG(ahead_ != nullptr, "a form proposes tokens that it cannot go through");
    ahead_->accept(row.proposed);
  }
  TokenMatcher& matcher = row.ahead == 0 ? *slot.matcher : *ahead_;
  allowed_.back().resize(static_cast<size_t>(token_mask_words(vocabulary)));
  return fill_form_mask(matcher, slot.request->sampling,
                        static_cast<int32_t>(slot.output().size()) + row.ahead, end_ids_,
                        allowed_.back());
}

// Behind allow(), which forbids early ends of an answer that has a form.
SampleRow Sampler::parameters(const LogitRow& row, const SlotTable& slots) {
  const Slot& slot = slots[row.slot];
  const SamplingParams& sampling = slot.request->sampling;
  const int32_t output_count = static_cast<int32_t>(slot.output().size()) + row.ahead;
  std::vector<TokenId>& banned = banned_.emplace_back();
  if (slot.matcher == nullptr) {
    for_each_early_end(sampling, end_ids_, output_count,
                       [&](TokenId token) { banned.push_back(token); });
  }
  const bool all_of_prompt = sampling.repetition_penalty != 1.0f && !has_penalty_window(sampling);
  return {.temperature = sampling.temperature,
          .top_k = sampling.top_k,
          .top_p = sampling.top_p,
          .min_p = sampling.min_p,
          .repetition_penalty = sampling.repetition_penalty,
          .presence_penalty = sampling.presence_penalty,
          .frequency_penalty = sampling.frequency_penalty,
          .top_n_sigma = sampling.top_n_sigma,
          .typical_p = sampling.typical_p,
          .xtc_probability = sampling.xtc_probability,
          .xtc_threshold = sampling.xtc_threshold,
          .dry = sampling.dry.on() ? &sampling.dry : nullptr,
          .history = slot.tokens,
          .prompt = all_of_prompt ? slot.prompt() : TokenSpan(),
          .output = slot.counts.entries(),
          .logit_bias = sampling.logit_bias,
          .banned = banned,
          .allowed = allowed_.back(),
          .seed = sampling.seed.value_or(0),
          .choice = static_cast<uint64_t>(slot.choice),
          .position = slot.tokens.size() + static_cast<size_t>(row.ahead),
          .logprobs = sampling.logprobs};
}

}  // namespace headrace
