// A tenant that crowds the machine (QueuePolicy::crowds): its prompts are cut, so that who comes
// for another tenant waits for the end of a short step; and while such a one has a prompt to
// compute, steps hold nothing of the crowd but the first in line.
#include <algorithm>
#include <limits>

#include "sched/batch_scheduler.h"

namespace headrace {

// Whether somebody else has a prompt that runs or can join now: it gets a step without the crowd.
bool BatchScheduler::gives_way_to_prompt() {
  if (options_.crowd_step_ratio <= 0 || !policy_->bounds_crowds()) return false;
  const bool runs = std::any_of(running_.begin(), running_.end(), [&](const Sequence* sequence) {
    return sequence->is<Prefilling>() && !sequence->rank.background && !policy_->crowds(*sequence);
  });
  if (runs || queue_.empty()) return runs;
  const Sequence* head = next_to_join();
  return head != nullptr && !policy_->crowds(*head) && !held_back(*head) && has_room(*head);
}

// Prompt tokens of crowding tenants in this step, beside the decodes that have been chosen.
int32_t BatchScheduler::crowd_budget() {
  constexpr int32_t kUnbounded = std::numeric_limits<int32_t>::max();
  constexpr int32_t kLeast = 16;  // they go on, whatever decodes cost
  if (options_.crowd_step_ratio <= 0 || !policy_->bounds_crowds()) return kUnbounded;
  if (gives_way_to_prompt()) return 0;
  if (!cost_.knows()) return kUnbounded;
  const double seconds = options_.crowd_step_ratio * cost_.cost().seconds(load_);
  return std::max(kLeast, prompt_tokens_within(seconds, 0, budget_left_));
}

// Of the prompt budget, which is one for all and, within it, one for those who crowd.
int32_t BatchScheduler::chunk_for(const Sequence& sequence, int32_t first,
                                  int32_t remaining) const {
  return chunk_of(first, policy_->crowds(sequence) ? std::min(remaining, crowd_left_) : remaining);
}

}  // namespace headrace
