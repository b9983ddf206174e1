// Background requests in a step (Request::background): what all others leave of it under
// background_step_seconds is theirs.
#include <algorithm>
#include <cmath>
#include <limits>

#include "sched/batch_scheduler.h"

namespace headrace {

// What the live ones left, decodes first; while there are any, only as much as keeps the step
// short. Where there are none, the oldest of all is of the background. It must get its token here
// too: when all pages are held it can preempt everybody, and the youngest nobody; were the whole
// budget the youngest's, for a decode, neither would ever go on.
void BatchScheduler::choose_background(StepShape shape) {
  if (background_queue_.empty() && live_running().size() == running_.size()) return;
  background_paused_ = may_pause_ && live_one_joins(shape);
  if (background_paused_) return;
  const int32_t kept = live_running().empty() ? budget_for_oldest(shape) : 0;
  for (Candidate& candidate : candidates_) {
    const Sequence& sequence = *candidate.sequence;
    if (!sequence.rank.background || !sequence.is<Decoding>() || shape == StepShape::kPrefill)
      continue;
    if (budget_left_ <= kept || !can_decode(sequence)) continue;
    StepLoad one;
    one.add({.first = sequence.planned, .count = 1, .samples = true});
    const bool must = nobody_live() && candidate.sequence == running_.front();
    if (!must && cost_.cost().seconds(load_ + one) > background_seconds()) break;
    candidate.count = 1;
    take_budget(sequence, sequence.planned, 1);
  }
  for (Candidate& candidate : candidates_) {
    const Sequence& sequence = *candidate.sequence;
    if (!sequence.rank.background || !sequence.is<Prefilling>() || shape == StepShape::kDecode)
      continue;
    const int32_t left = std::get<Prefilling>(sequence.state).target - sequence.planned;
    int32_t room = std::min(left, background_prompt_tokens(sequence));
    if (nobody_live() && candidate.sequence == running_.front())
      room = std::max(room, std::min(left, kept));
    if (!options_.chunked_prefill && room < left) continue;
    candidate.count = chunk_of(sequence.planned, room);
    take_budget(sequence, sequence.planned, candidate.count);
  }
}

// Whether a live request has all it needs to join in this step: it comes after the background has
// been given its part, and would wait for it in its own first step.
bool BatchScheduler::live_one_joins(StepShape shape) {
  if (queue_.empty() || shape == StepShape::kDecode) return false;
  const Sequence& first = **queue_.begin();
  return !held_back(first) && has_room(first);
}

// How long the step under construction may take with background work in it.
double BatchScheduler::background_seconds() const {
  if (nobody_live()) return gap_seconds();
  // Nothing is known: no step is short for certain. What is known is only so good.
  return cost_.knows() ? options_.background_step_seconds / beside_overrun_.ratio() : -1;
}

bool BatchScheduler::nobody_live() const {
  return queue_.empty() && (running_.empty() || running_.front()->rank.background);
}

// The same where nobody live has work now.
double BatchScheduler::gap_seconds() const {
  const bool lately = now() - live_seconds_ <= kLiveLatelySeconds;
  // A prompt that may not be cut would wait for as long as live requests come.
  if (!lately || options_.background_gap_seconds <= 0 || !options_.chunked_prefill ||
      !cost_.knows()) {
    return std::numeric_limits<double>::infinity();
  }
  StepLoad shortest;
  shortest.add({.count = 1, .samples = true});
  return std::max(options_.background_gap_seconds, 2 * cost_.cost().seconds(shortest));
}

// Prompt tokens of a background sequence that fit into the step, by its cost.
int32_t BatchScheduler::background_prompt_tokens(const Sequence& sequence) const {
  const double limit = background_seconds();
  if (std::isinf(limit)) return budget_left_;
  return prompt_tokens_within(limit, sequence.planned, budget_left_);
}

// What live work left of a step under its bound while there was more background work than could
// run, and how much of that it took, by the cost of steps.
void BatchScheduler::note_background_room(const StepPlan& plan) {
  if (background_queue_.empty() || !cost_.knows()) return;
  StepLoad live;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (!planned_[i]->rank.background) live.add(plan.work[i]);
  }
  if (live.rows() == 0) return;  // the whole step is theirs
  const StepLoad all = StepLoad::of(plan);
  const int32_t more = prompt_tokens_beside(all, background_seconds(), 0,
                                            options_.max_num_batched_tokens - plan.token_count);
  const auto used_tokens = static_cast<uint64_t>(all.rows() - live.rows());
  totals_.background_used_tokens += used_tokens;
  totals_.background_room_tokens += used_tokens + static_cast<uint64_t>(more);
  const double taken = cost_.cost().seconds(live);
  const double room = std::max(0.0, options_.background_step_seconds - taken);
  const double used = cost_.cost().seconds(all) - taken;
  totals_.background_room_seconds += room;
  totals_.background_used_seconds += std::min(room, used);  // live work may join after it
}

// What the oldest step in flight, which took so long, computed for the background, and whether that
// cost live answers more than they were promised. (A live prompt makes its step long by itself.)
void BatchScheduler::note_beside(const StepPlan& plan, double seconds, double predicted) {
  const std::vector<Sequence*>& sequences = in_flight_.front().sequences;
  uint64_t background = 0;
  bool live = false, live_prompt = false;
  for (size_t i = 0; i < plan.work.size(); ++i) {
    if (sequences[i]->rank.background) {
      background += static_cast<uint64_t>(plan.work[i].count);
    } else {
      live = true;
      live_prompt = live_prompt || plan.work[i].count > 1;
    }
  }
  totals_.background_tokens += background;
  if (background == 0 || !live || live_prompt || seconds <= 0) return;
  ++totals_.beside_steps;
  if (seconds > options_.background_step_seconds) ++totals_.beside_steps_over;
  totals_.beside_seconds += seconds;
  totals_.beside_seconds_max = std::max(totals_.beside_seconds_max, seconds);
  beside_overrun_.note(seconds, predicted);
}

}  // namespace headrace
