#include "engine/drafter.h"

#include <algorithm>
#include <chrono>
#include <cmath>
#include <utility>

namespace headrace {
namespace {

// A draft that has no more to catch up with goes before those that have: they leave it no rows.
constexpr int32_t kInStep = 16;

ModelPass::Sizes draft_sizes(const ModelRunnerOptions& options) {
  return {.tokens = std::max(options.max_num_batched_tokens, options.max_num_seqs),
          .kv_length_max = options.max_model_len};
}

LayerRange draft_layers(const KvPlan& plan, const Model& draft) {
  const auto all = static_cast<int32_t>(plan.layer_group.size());
  return {all - draft.spec().layer_count, all};
}

}  // namespace

int64_t Drafter::workspace_bytes(Device& device, const ModelRunnerOptions& options) {
  return ModelPass::workspace_bytes(device, *options.draft, draft_sizes(options));
}

Result<std::unique_ptr<Drafter>> Drafter::create(Device& device, const KvStorage& storage,
                                                 const ModelRunnerOptions& options) {
  HR_ASSIGN_OR_RETURN(auto pass, ModelPass::create(device, *options.draft, draft_sizes(options),
                                                   /*group=*/nullptr, options.hooks));
  const LayerRange layers = draft_layers(storage.plan(), *options.draft);
  return std::unique_ptr<Drafter>(new Drafter(storage, layers, std::move(pass), options));
}

Drafter::Drafter(const KvStorage& storage, LayerRange layers, std::unique_ptr<ModelPass> pass,
                 const ModelRunnerOptions& options)
    : kv_(storage.layers().subspan(static_cast<size_t>(layers.first))),
      rows_max_(draft_sizes(options).tokens),
      chance_min_(options.draft_chance_min),
      end_ids_(options.end_ids),
      builder_(storage.plan(), layers, /*keeps_rows=*/false),
      pass_(std::move(pass)),
      pages_(storage.plan(), layers, options.block_count) {}

const StepPlan& Drafter::propose(const StepPlan& plan, const SlotTable& slots, Sampler& sampler) {
  pages_.take(plan);
  drafts_.clear();
  drafting_ = {};
  for (size_t i = 0; i < plan.work.size(); ++i) {
    const Work& work = plan.work[i];
    if (work.drafted == 0) continue;
    drafts_.push_back({.work = i,
                       .sequence = work.sequence,
                       .slot = work.slot,
                       .known = slots[work.slot].length(),
                       .most = work.drafted});
  }
  if (drafts_.empty()) return plan;
  const auto start = std::chrono::steady_clock::now();
  catch_up(slots);
  extend(slots, sampler);
  drafted_ = {.step = plan.step, .work = plan.work, .token_count = plan.token_count};
  for (Draft& draft : drafts_) {
    Work& work = drafted_.work[draft.work];
    const auto left_out = work.drafted - static_cast<int32_t>(draft.tokens.size());
    work.proposed = draft.tokens;
    work.drafted = 0;
    work.count -= left_out;
    drafted_.token_count -= left_out;
  }
  drafting_.seconds =
      std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
  return drafted_;
}

// The first pass: all that is known and not computed, as far as there are rows.
void Drafter::catch_up(const SlotTable& slots) {
  runs_.clear();
  in_pass_.clear();
  int32_t rows_left = rows_max_;
  for (const bool in_step : {true, false}) {
    for (Draft& draft : drafts_) {
      const int32_t behind = draft.known - pages_.computed(slots, draft.slot);
      if ((behind <= kInStep) == in_step && !draft.going) add_known(draft, slots, rows_left);
    }
  }
  if (!runs_.empty()) forward(slots);
}

// The last token is computed in any case: what follows it is asked. An id of padding that the draft
// does not have ends its drafts.
void Drafter::add_known(Draft& draft, const SlotTable& slots, int32_t& rows_left) {
  const int32_t first = std::min(pages_.computed(slots, draft.slot), draft.known - 1);
  const int32_t count = std::min(draft.known - first, rows_left);
  if (count == 0) return;
  const std::vector<TokenId>& tokens = slots[draft.slot].tokens;
  CHECK(std::ssize(tokens) == draft.known);
  const TokenSpan run =
      TokenSpan(tokens).subspan(static_cast<size_t>(first), static_cast<size_t>(count));
  const int32_t vocabulary = pass_->model().spec().vocab_size;
  if (std::any_of(run.begin(), run.end(), [&](TokenId id) { return id >= vocabulary; })) return;
  runs_.push_back({.slot = draft.slot, .first = first, .tokens = run});
  in_pass_.push_back(&draft);
  pages_.note(slots, draft.slot, first, first + count);
  rows_left -= count;
  draft.going = first + count == draft.known;
}

// Samples behind a pass and starts the next, until nobody goes on.
void Drafter::extend(const SlotTable& slots, Sampler& sampler) {
  while (!runs_.empty()) {
    std::vector<LogitRow> rows;
    std::vector<Draft*> going;
    int32_t row = 0;
    for (size_t i = 0; i < runs_.size(); ++i) {
      row += static_cast<int32_t>(runs_[i].tokens.size());
      Draft& draft = *in_pass_[i];
      if (!draft.going) continue;
      rows.push_back({.hidden_row = row - 1,
                      .sequence = draft.sequence,
                      .slot = draft.slot,
                      .samples = true,
                      .ahead = static_cast<int32_t>(draft.tokens.size())});
      going.push_back(&draft);
    }
    sample(going, rows, slots, sampler);
    pass_->end();
    runs_.clear();
    in_pass_.clear();
    for (Draft* draft : going) {
      if (!draft->going) continue;
      runs_.push_back({.slot = draft->slot,
                       .first = draft->known + static_cast<int32_t>(draft->tokens.size()) - 1,
                       .tokens = TokenSpan(draft->tokens).last(1)});
      in_pass_.push_back(draft);
    }
    if (!runs_.empty()) forward(slots);
  }
}

void Drafter::forward(const SlotTable& slots) {
  const ForwardBatch batch = builder_.build(runs_, slots);
  pass_->forward(batch, kv_, {});
  ++drafting_.passes;
  drafting_.rows += static_cast<int32_t>(batch.tokens.size());
  for (Draft* draft : in_pass_) ++draft->passes;
}

void Drafter::sample(std::span<Draft*> drafts, std::span<const LogitRow> rows,
                     const SlotTable& slots, Sampler& sampler) {
  for (size_t first = 0; first < rows.size(); first += kLogitRowsMax) {
    const size_t count = std::min<size_t>(kLogitRowsMax, rows.size() - first);
    const Workspace::Mark mark(pass_->workspace());
    const auto part = rows.subspan(first, count);
    const TensorView logits = pass_->logits(part);
    OpContext op = pass_->context();
    const std::span<const SampleResult> sampled = sampler.propose(op, part, logits, slots);
    for (size_t i = 0; i < count; ++i) {
      Draft& draft = *drafts[first + i];
      add(draft, sampled[i], slots[draft.slot].request->sampling);
    }
  }
}

// Behind an end nothing follows. What a greedy answer gets is sure to the draft's own probability;
// what is drawn may be right however seldom it comes.
void Drafter::add(Draft& draft, const SampleResult& sampled, const SamplingParams& sampling) const {
  draft.going = !sampled.fault;
  if (sampled.fault) return;
  draft.tokens.push_back(sampled.token);
  if (sampling.temperature == 0) draft.chance *= std::exp(sampled.logprob);
  const bool ends = std::find(end_ids_.begin(), end_ids_.end(), sampled.token) != end_ids_.end();
  draft.going = std::ssize(draft.tokens) < draft.most && draft.chance >= chance_min_ && !ends;
}

// Of the last pass's token keys and values are there only where another pass followed.
void Drafter::settle(const SlotTable& slots, StepResult& result) {
  result.drafting = std::exchange(drafting_, {});
  size_t at = 0;
  for (const Draft& draft : drafts_) {
    while (at < result.rows.size() && result.rows[at].sequence != draft.sequence) ++at;
    CHECK(at < result.rows.size());
    StepResult::Row& row = result.rows[at];
    row.drafted = static_cast<int32_t>(draft.tokens.size());
    const int32_t accepted = static_cast<int32_t>(row.accepted.size()) - 1;
    const int32_t right = std::min(accepted, draft.passes - 1);
    if (right > 0 && !draft.tokens.empty()) {
      pages_.note(slots, draft.slot, draft.known, draft.known + right);
    }
  }
  drafts_.clear();
}

}  // namespace headrace
