#include "sched/priority_policy.h"

#include <algorithm>

namespace headrace {

Rank PriorityPolicy::rank(const Sequence& sequence) const {
  return {.level = std::max(sequence.request->priority, kPromotedLevel + 1)};
}

bool PriorityPolicy::preempts(const Sequence& waiting, const Sequence& running) const {
  return waiting.rank.level < running.rank.level;
}

}  // namespace headrace
