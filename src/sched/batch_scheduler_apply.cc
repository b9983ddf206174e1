// apply(): what a step brought.
#include <algorithm>
#include <cmath>

#include "base/check.h"
#include "sched/batch_scheduler.h"

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

bool contains(const std::vector<TokenId>& list, TokenId token) {
  return std::find(list.begin(), list.end(), token) != list.end();
}

}  // namespace

std::vector<Emission> BatchScheduler::apply(const StepPlan& plan, const StepResult& result) {
  if (plan.empty()) return {};
  CHECK_MSG(!in_flight_.empty() && in_flight_.front().step == plan.step,
            "plans are applied in order");
  note_cost(plan);
  const std::vector<Sequence*> sequences = std::move(in_flight_.front().sequences);
  in_flight_.pop_front();
  for (size_t i = 0; i < sequences.size(); ++i) note_computed(plan.work[i], *sequences[i]);
  std::vector<Emission> emissions;
  emissions.reserve(result.rows.size());
  RowCursor rows(result.rows);
  for (size_t i = 0; i < sequences.size(); ++i) {
    const Work& work = plan.work[i];
    if (work.rows == LogitRows::kAll || work.samples) {
      take_row(*sequences[i], work, rows.take(work.sequence), emissions);
    }
    for (const SampleTarget& target : work.also_sample) {
      const Work sample{.sequence = target.sequence, .slot = target.slot, .samples = true};
      Sequence* sequence = find(target.sequence);
      CHECK(sequence != nullptr);
      take_row(*sequence, sample, rows.take(target.sequence), emissions);
    }
    end_prompt_only(work, *sequences[i], emissions);
  }
  pool_.advance(Ticket(plan.step));
  sweep_retiring();
  work_left_ = has_work();
  return emissions;
}

// A step took from the end of the one before it until now, with what the host did between them;
// from its plan where there was nothing to do before.
void BatchScheduler::note_cost(const StepPlan& plan) {
  const double started = work_left_
                             ? applied_seconds_
                             : std::max(in_flight_.front().planned_seconds, applied_seconds_);
  applied_seconds_ = now();
  const double seconds = applied_seconds_ - started;
  const StepLoad load = StepLoad::of(plan);
  const double predicted = cost_.knows() ? cost_.cost().seconds(load) : 0;
  cost_.observe(load, seconds);
  note_displacement_budget(seconds);
  note_beside(plan, seconds, predicted);
  // A step that was to take longer was so by choice.
  const bool keeps_target = predicted <= options_.tpot_target_seconds;
  if (load.decodes > 0 && load.prompt_tokens > 0 && keeps_target) {
    chunk_overrun_.note(seconds, predicted);
  }
  if (cache_ != nullptr && cost_.knows()) {
    cache_->set_seconds_per_token(cost_.cost().seconds_per_prompt_token());
  }
}

// What is not used in ten minutes is forgotten.
void BatchScheduler::note_displacement_budget(double step_seconds) {
  constexpr double kRemembered = 600;
  const double share = policy_->displacement_share();
  if (std::isinf(share)) return;
  displacement_seconds_ =
      std::min(displacement_seconds_ + share * step_seconds, share * kRemembered);
}

// Pages that are now full are written: they may be shared.
void BatchScheduler::note_computed(const Work& work, Sequence& sequence) {
  CHECK_MSG(sequence.id == work.sequence, "a sequence left while a step in flight referred to it");
  if (work.ended) {
    totals_.ended_row_tokens += static_cast<uint64_t>(work.count);
    return;
  }
  const int32_t end = work.first + work.count;
  const int32_t fresh_from = std::clamp(sequence.computed_max, work.first, end);
  totals_.recomputed_tokens += static_cast<uint64_t>(fresh_from - work.first);
  const int32_t prompt_end = std::clamp(sequence.prompt_length(), fresh_from, end);
  totals_.prompt_tokens += static_cast<uint64_t>(prompt_end - fresh_from);
  sequence.computed_max = std::max(sequence.computed_max, end);
  charge(sequence, prompt_end - fresh_from, work.samples ? 1 : 0);
  for (const SampleTarget& target : work.also_sample) charge(*find(target.sequence), 0, 1);
  if (!sequence.running()) return;
  sequence.blocks.publish_full(pool_, work.first, end);
  supply_.cache_prefix(sequence, end);
}

// Also what was in flight when it was preempted: its policy has it served.
void BatchScheduler::charge(Sequence& sequence, int32_t prompt_tokens, int32_t output_tokens) {
  if (sequence.is<Retiring>() || sequence.rank.background) return;
  const bool moved = policy_->served(sequence, prompt_tokens, output_tokens);
  if (moved && sequence.running()) rerank(sequence);
}

void BatchScheduler::take_row(Sequence& sequence, const Work& work, const StepResult::Row* row,
                              std::vector<Emission>& out) {
  if (work.samples) {
    CHECK_MSG(row != nullptr, "a Work that samples has no row in the result");
    --sequence.samples_in_flight;
  }
  if (sequence.is<Retiring>() || sequence.muted) {
    if (work.samples) ++totals_.dropped_tokens;
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
  if (work.samples) take_sampled_row(sequence, *row, emission);
  const bool ends = emission.finish != FinishReason::kNone;
  if (!ends && emission.tokens.empty() && emission.prompt_logprobs.empty()) out.pop_back();
  if (!ends) return;
  policy_->finished(sequence);
  admission_.answer_ended(sequence);
  end_choice(sequence);
}

void BatchScheduler::take_prompt_logprobs(Sequence& sequence, const Work& work,
                                          const StepResult::Row& row, Emission& emission) {
  int32_t& scored = sequence.entry->prompt_scored;
  const int32_t first = work.first + 1;  // the prompt index of entry 0
  const int32_t skip = std::max(0, scored - first);
  if (skip >= static_cast<int32_t>(row.prompt_logprobs.size())) return;
  emission.prompt_first = first + skip;
  emission.prompt_logprobs.assign(row.prompt_logprobs.begin() + skip, row.prompt_logprobs.end());
  scored = first + static_cast<int32_t>(row.prompt_logprobs.size());
}

void BatchScheduler::take_sampled_row(Sequence& sequence, const StepResult::Row& row,
                                      Emission& emission) {
  CHECK(!row.accepted.empty());
  const bool logprobs = sequence.request->sampling.logprobs >= 0;
  CHECK(!logprobs || row.logprobs.size() == row.accepted.size());
  for (size_t i = 0; i < row.accepted.size(); ++i) {
    const TokenId token = row.accepted[i];
    if (sequence.output.empty()) sequence.first_token_seconds = applied_seconds_;
    sequence.output.push_back(token);
    emission.tokens.push_back(token);
    if (logprobs) emission.logprobs.push_back(row.logprobs[i]);
    ++totals_.generation_tokens;
    emission.finish = finish_after(sequence, token, emission.stop_token);
    if (emission.finish != FinishReason::kNone) return;
  }
}

// `token` is already in the output.
FinishReason BatchScheduler::finish_after(const Sequence& sequence, TokenId token,
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
  return full ? FinishReason::kLength : FinishReason::kNone;
}

// max_tokens = 0: the prompt was only scored, every choice ends with it.
void BatchScheduler::end_prompt_only(const Work& work, const Sequence& leader,
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
    end_choice(*sequence);
  }
}

// NaN logits end the choice; of a leader, all who would have shared its pages. What it computed may
// be wrong from some token on: nobody shall find it.
void BatchScheduler::fault(Sequence& sequence, std::vector<Emission>& out) {
  supply_.forget(sequence);
  std::vector<Sequence*> ended = sequence.followers;
  ended.push_back(&sequence);
  for (Sequence* each : ended) {
    out.push_back({.request = each->request->id,
                   .owner = each->request->owner,
                   .choice = each->choice,
                   .finish = FinishReason::kFault});
    end_choice(*each);
  }
}

void BatchScheduler::sweep_retiring() {
  if (live_running().empty()) drop_ended_rows();
  const Ticket applied = pool_.applied();
  std::erase_if(retiring_, [&](Sequence* sequence) {
    if (sequence->last_step > applied || std::get<Retiring>(sequence->state).in_batch) return false;
    sequences_.erase(sequence->id);
    return true;
  });
}

}  // namespace headrace
