#include "engine/step_history.h"

#include <algorithm>

namespace headrace {

void StepHistory::add(const StepPlan& plan, double began, double seconds) {
  PastStep step{.number = ++count_, .age = began, .seconds = seconds};
  step.sequences = static_cast<int32_t>(plan.work.size());
  for (const Work& work : plan.work) {
    const bool goes_on = work.samples && work.count - work.proposal_count() <= 1;
    (goes_on ? step.decode_tokens : step.prompt_tokens) += work.count;
  }
  kept_[step.number % kKept] = step;
}

std::vector<PastStep> StepHistory::since(uint64_t after, double now) const {
  const uint64_t oldest = count_ > kKept ? count_ - kKept + 1 : 1;
  std::vector<PastStep> steps;
  for (uint64_t number = std::max(oldest, after + 1); number <= count_ && number > after;
       ++number) {
    steps.push_back(kept_[number % kKept]);
    steps.back().age = now - steps.back().age;
  }
  return steps;
}

}  // namespace headrace
