#include "sched/deadline_policy.h"

namespace headrace {

Rank DeadlinePolicy::rank(const Sequence& sequence) const {
  return {.level = sequence.policy.level, .key = sequence.policy.deadline_seconds};
}

void DeadlinePolicy::arrived(Sequence& sequence) {
  const auto index = static_cast<size_t>(sequence.request->slo_class);
  sequence.policy.deadline_seconds = sequence.arrival_seconds + classes_.at(index).ttft_seconds;
}

bool DeadlinePolicy::reconsider(Sequence& first, double now_seconds) {
  const bool late = first.policy.level == 0 && first.rank.level != kPromotedLevel &&
                    first.output.empty() && now_seconds > first.policy.deadline_seconds;
  if (late) first.policy.level = 1;
  return late;
}

}  // namespace headrace
