#include "sched/result_reader.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {
namespace {

// Rows come in the order of the plan, so the next one is almost always the right one.
class RowCursor {
 public:
  explicit RowCursor(const std::vector<StepResult::Row>& rows) : rows_(rows) {}

  const StepResult::Row* take(SequenceId sequence) {
    if (next_ < rows_.size() && rows_[next_].sequence == sequence) return &rows_[next_++];
    const auto found = std::find_if(rows_.begin(), rows_.end(), [&](const StepResult::Row& row) {
      return row.sequence == sequence;
    });
    return found == rows_.end() ? nullptr : &*found;
  }

 private:
  const std::vector<StepResult::Row>& rows_;
  size_t next_ = 0;
};

bool brings_row(const Work& work) { return work.rows == LogitRows::kAll || work.samples; }

bool contains(const std::vector<TokenId>& list, TokenId token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

}  // namespace

std::vector<Emission> ResultReader::read(const StepPlan& plan, std::span<Sequence* const> sequences,
                                         const StepResult& result, const Moment& moment) {
  moment_ = moment;
  note_all_computed(plan, sequences, result);
  std::vector<Emission> emissions;
  emissions.reserve(result.rows.size());
  RowCursor rows(result.rows);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Work& work = plan.work[i];
    if (brings_row(work)) {
      take_row(*sequences[i], work, rows.take(work.sequence), emissions);
    }
    for (const SampleTarget& target : work.also_sample) {
      const Work sample{.sequence = target.sequence, .slot = target.slot, .samples = true};
      Sequence* sequence = table_.find(target.sequence);
      CHECK(sequence != nullptr);
      take_row(*sequence, sample, rows.take(target.sequence), emissions);
    }
    end_prompt_only(work, *sequences[i], emissions);
  }
  beams_.advance(moment.now_seconds, emissions);
  return emissions;
}

void ResultReader::note_all_computed(const StepPlan& plan, std::span<Sequence* const> sequences,
                                     const StepResult& result) {
  RowCursor rows(result.rows);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Work& work = plan.work[i];
    const StepResult::Row* row = brings_row(work) ? rows.take(work.sequence) : nullptr;
    for (const SampleTarget& target : work.also_sample) rows.take(target.sequence);
    const bool verified = work.proposal_count() > 0 && row != nullptr;
    note_computed(work, *sequences[i], verified ? row : nullptr);
  }
}

void ResultReader::count(SchedulerStats& stats) const {
  stats.prompt_tokens = prompt_tokens_;
  stats.generation_tokens = generation_tokens_ + beams_.tokens();
  stats.recomputed_tokens = recomputed_tokens_;
  stats.dropped_tokens = dropped_tokens_;
  stats.ended_row_tokens = ended_row_tokens_;
}

// Pages that are now full are written: they may be shared. `verified`: what the step sampled, where
// it had proposals; the token behind the last that was accepted is known and not computed.
void ResultReader::note_computed(const Work& work, Sequence& sequence,
                                 const StepResult::Row* verified) {
  CHECK_MSG(sequence.id == work.sequence, "a sequence left while a step in flight referred to it");
  if (work.ended) {
    ended_row_tokens_ += static_cast<uint64_t>(work.count);
    return;
  }
  const int32_t proposed = work.proposal_count();
  const TokenSpan accepted = verified == nullptr ? TokenSpan() : TokenSpan(verified->accepted);
  const int32_t kept = std::max(0, static_cast<int32_t>(accepted.size()) - 1);
  const int32_t end = work.first + work.count - proposed + kept;
  const int32_t fresh_from = std::clamp(sequence.computed_max, work.first, end);
  recomputed_tokens_ += static_cast<uint64_t>(fresh_from - work.first);
  const int32_t prompt_end = std::clamp(sequence.prompt_length(), fresh_from, end);
  prompt_tokens_ += static_cast<uint64_t>(prompt_end - fresh_from);
  sequence.computed_max = std::max(sequence.computed_max, end);
  charge(sequence, prompt_end - fresh_from, work.samples ? 1 + kept : 0);
  for (const SampleTarget& target : work.also_sample) {
    Sequence& follower = *table_.find(target.sequence);
    charge(follower, 0, 1);
    if (follower.running()) follower.extent.settle(end, false);
  }
  if (proposed > 0) {
    proposer_.note(sequence, work, verified);
  } else if (work.samples) {
    proposer_.note_token_without(sequence);
  }
  // Not of what was preempted meanwhile. (Behind a narrow window it may hold no page and go on.)
  if (sequence.extent.most > 0) sequence.extent.settle(end, proposed > 0);
  if (sequence.running()) {
    sequence.blocks.publish_full(pool_, work.first, end);
    supply_.cache_prefix(sequence, end, accepted);
  }
  supply_.note_saves(sequence, work);
}

// Also what was in flight when it was preempted: its policy has it served.
void ResultReader::charge(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens) {
  if (sequence.is<Retiring>() || sequence.rank.background) return;
  const bool moved =
      policy_.served(ranked_by(sequence), {prompt_tokens, output_tokens, moment_.step_seconds});
  if (moved && sequence.running()) table_.rerank(sequence);
}

void ResultReader::take_row(Sequence& sequence, const Work& work, const StepResult::Row* row,
                            std::vector<Emission>& out) {
  if (work.samples) {
    CHECK_MSG(row != nullptr, "a Work that samples has no row in the result");
    --sequence.samples_in_flight;
  }
  if (sequence.is<Retiring>() || sequence.muted) {
    if (work.samples) ++dropped_tokens_;
    return;
  }
  if (row == nullptr) return;  // all its prompt tokens were the first of the prompt
  if (row->fault) return fault(sequence, out);
  Emission& emission = out.emplace_back();
  emission.request = sequence.request->id;
  emission.owner = sequence.request->owner;
  emission.choice = sequence.choice;
  emission.cached_tokens = sequence.entry->cached_tokens;
  if (work.rows == LogitRows::kAll) take_prompt_logprobs(sequence, work, *row, emission);
  const bool is_beam = sequence.request->beams.has_value();
  if (work.samples && is_beam) beams_.take(sequence, *row);
  if (work.samples && row->dead_end) emission.finish = FinishReason::kDeadEnd;
  if (work.samples && !row->dead_end && !is_beam) take_sampled_row(sequence, *row, emission);
  const bool ends = emission.finish != FinishReason::kNone;
  if (!ends && emission.tokens.empty() && emission.prompt_logprobs.empty()) out.pop_back();
  if (!ends) return;
  policy_.note(SequenceEvent::kFinished, sequence);
  admission_.answer_ended(sequence);
  table_.end_choice(sequence);
}

void ResultReader::take_prompt_logprobs(Sequence& sequence, const Work& work,
                                        const StepResult::Row& row, Emission& emission) {
  int32_t& scored = sequence.entry->prompt_scored;
  const int32_t first = work.first + 1;  // the prompt index of entry 0
  const int32_t skip = std::max(0, scored - first);
  if (skip >= static_cast<int32_t>(row.prompt_logprobs.size())) return;
  emission.prompt_first = first + skip;
  emission.prompt_logprobs.assign(row.prompt_logprobs.begin() + skip, row.prompt_logprobs.end());
  scored = first + static_cast<int32_t>(row.prompt_logprobs.size());
}

void ResultReader::take_sampled_row(Sequence& sequence, const StepResult::Row& row,
                                    Emission& emission) {
  CHECK(!row.accepted.empty());
  const bool logprobs = sequence.request->sampling.logprobs >= 0;
  CHECK(!logprobs || row.logprobs.size() == row.accepted.size());
  for (size_t i = 0; i < row.accepted.size(); ++i) {
    const TokenId token = row.accepted[i];
    if (sequence.output.empty()) sequence.first_token_seconds = moment_.now_seconds;
    sequence.output.push_back(token);
    emission.tokens.push_back(token);
    if (logprobs) emission.logprobs.push_back(row.logprobs[i]);
    ++generation_tokens_;
    emission.finish = finish_after(sequence, token, emission.stop_token);
    if (emission.finish != FinishReason::kNone) break;
  }
  if (row.form_ended) emission.finish = FinishReason::kStop;
}

// `token` is already in the output.
FinishReason ResultReader::finish_after(const Sequence& sequence, TokenId token,
                                        std::optional<TokenId>& stop_token) const {
  const SamplingParams& sampling = sequence.request->sampling;
  const auto count = static_cast<int32_t>(sequence.output.size());
  if (count > sampling.min_tokens) {
    if (!sampling.ignore_eos && contains(options_.end_ids, token)) return FinishReason::kStop;
    if (contains(sampling.stop_token_ids, token)) {
      stop_token = token;
      return FinishReason::kStop;
    }
  }
  const bool full =
      count >= sampling.max_tokens || sequence.known_length() >= options_.max_model_len;
  if (full) return FinishReason::kLength;
  const bool loops = sampling.loop.on() && count > sampling.min_tokens &&
                     ends_in_loop(sequence.output, sampling.loop);
  return loops ? FinishReason::kRepetition : FinishReason::kNone;
}

// max_tokens = 0: the prompt was only scored, every choice ends with it.
void ResultReader::end_prompt_only(const Work& work, const Sequence& leader,
                                   std::vector<Emission>& out) {
  if (leader.request->sampling.max_tokens > 0 || leader.is<Retiring>()) return;
  if (work.first + work.count < leader.prompt_length()) return;
  const std::vector<Sequence*> choices = leader.entry->choices;
  for (Sequence* sequence : choices) {
    if (sequence == nullptr) continue;
    const Emission* last = out.empty() ? nullptr : &out.back();
    const bool merge = last != nullptr && last->request == sequence->request->id &&
                       last->choice == sequence->choice;
    if (!merge) {
      out.push_back({.request = sequence->request->id,
                     .owner = sequence->request->owner,
                     .choice = sequence->choice});
    }
    out.back().finish = FinishReason::kLength;
    table_.end_choice(*sequence);
  }
}

// NaN logits end the choice; of a leader, all choices that would have shared its pages; of a beam,
// its search. What it
// computed may be wrong from some token on: no other sequence shall find it.
void ResultReader::fault(Sequence& sequence, std::vector<Emission>& out) {
  supply_.forget(sequence);
  if (sequence.request->beams) return beams_.fault(*sequence.entry, out);
  std::vector<Sequence*> ended = sequence.followers;
  ended.push_back(&sequence);
  for (Sequence* each : ended) {
    out.push_back({.request = each->request->id,
                   .owner = each->request->owner,
                   .choice = each->choice,
                   .finish = FinishReason::kFault});
    table_.end_choice(*each);
  }
}

}  // namespace headrace
