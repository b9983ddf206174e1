#include "sched/prefill_first_policy.h"

#include <algorithm>

namespace headrace {

StepShape PrefillFirstPolicy::shape(const StepView& view) {
  const bool prefills = std::any_of(view.running.begin(), view.running.end(),
                                    [](const Sequence* each) { return each->is<Prefilling>(); });
  const bool joins = !view.queue.empty() && view.fits(**view.queue.begin());
  return prefills || joins ? StepShape::kPrefill : StepShape::kDecode;
}

}  // namespace headrace
