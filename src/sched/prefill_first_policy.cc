#include "sched/prefill_first_policy.h"

#include <algorithm>

namespace headrace {

StepShape PrefillFirstPolicy::shape(const StepView& view) {
  const auto prefills = std::count_if(view.running.begin(), view.running.end(),
                                      [](const Sequence* each) { return each->is<Prefilling>(); });
  const bool joins = !view.queue.empty() && view.fits(**view.queue.begin());
  const bool answers_wait = prefills < static_cast<ptrdiff_t>(view.running.size());
  if ((prefills == 0 && !joins) || (answers_wait && prefill_steps_ >= prefill_steps_max_)) {
    prefill_steps_ = 0;
    return StepShape::kDecode;
  }
  ++prefill_steps_;
  return StepShape::kPrefill;
}

}  // namespace headrace
