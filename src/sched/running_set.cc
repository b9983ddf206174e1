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

Sequence& RunningSet::oldest_to_go_on() const {
  Sequence& oldest = *list_.front();
  if (!oldest.request->beams) return oldest;
  const auto found = std::find_if(list_.begin(), list_.end(), [&](const Sequence* each) {
    const bool goes_on = each->is<Prefilling>() || each->can_decode();
    return goes_on && each->request == oldest.request;
  });
  return found == list_.end() ? oldest : **found;
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
