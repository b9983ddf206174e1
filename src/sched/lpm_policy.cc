#include "sched/lpm_policy.h"

namespace headrace {

// Once resumed is always first: what it has computed is longest in the cache, or lost.
Sequence* LpmPolicy::next(const StepView& view) {
  Sequence* best = *view.queue.begin();
  if (best->rank.level == kPromotedLevel || view.free_slots == 0) return best;
  int32_t longest = -1;
  int candidates = 0;
  for (Sequence* waiting : view.queue) {
    if (candidates++ == kCandidatesMax) break;
    const int32_t cached = view.cached_tokens(*waiting);
    if (cached <= longest) continue;
    longest = cached;
    best = waiting;
  }
  return best;
}

}  // namespace headrace
