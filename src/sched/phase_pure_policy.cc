#include "sched/phase_pure_policy.h"

#include <algorithm>

namespace headrace {

StepShape PhasePurePolicy::shape(const StepView& view) {
  const auto count = std::count_if(view.running.begin(), view.running.end(),
                                   [](const Sequence* s) { return s->is<Prefilling>(); });
  const bool decoding = count < static_cast<ptrdiff_t>(view.running.size());
  const bool prompts = count > 0 || (!view.queue.empty() && view.free_slots > 0);
  if (!prompts || (decoding && prefill_steps_ >= kPrefillStepsMax)) {
    prefill_steps_ = 0;
    return StepShape::kDecode;
  }
  ++prefill_steps_;
  return StepShape::kPrefill;
}

}  // namespace headrace
