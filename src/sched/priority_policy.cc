#include "sched/priority_policy.h"

#include <algorithm>

namespace headrace {

Rank PriorityPolicy::rank(const Sequence& sequence) const {
  const int64_t level = sign_ * sequence.request->priority;
  constexpr int64_t kMost = std::numeric_limits<int32_t>::max();
  return {.level = static_cast<int32_t>(std::clamp<int64_t>(level, kPromotedLevel + 1, kMost))};
}

bool PriorityPolicy::preempts(const Sequence& waiting, const Sequence& running, double) const {
  return waiting.rank.level < running.rank.level;
}

}  // namespace headrace
