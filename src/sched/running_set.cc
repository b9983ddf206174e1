#include "sched/running_set.h"

#include <algorithm>

#include "base/check.h"

namespace headrace {

std::span<Sequence* const> RunningSet::live() const {
  if (!has_background()) return list_;
  const auto end = std::partition_point(
      list_.begin(), list_.end(), [](const Sequence* each) { return !each->rank.background; });
  return {list_.begin(), end};
}

void RunningSet::insert(Sequence& sequence) {
  list_.insert(std::upper_bound(list_.begin(), list_.end(), &sequence, ByRank()), &sequence);
}

void RunningSet::remove(Sequence& sequence) {
  const auto at = std::lower_bound(list_.begin(), list_.end(), &sequence, ByRank());
  CHECK(at != list_.end() && *at == &sequence);
  list_.erase(at);
}

}  // namespace headrace
