#include "sched/waiting_ratio_policy.h"

#include <algorithm>

namespace headrace {

StepShape WaitingRatioPolicy::shape(const StepView& view) {
  const bool prefilling = std::any_of(view.running.begin(), view.running.end(),
                                      [](const Sequence* s) { return s->is<Prefilling>(); });
  if (prefilling) return StepShape::kPrefill;
  if (view.queue.empty() || view.free_slots == 0) {
    decode_steps_ = 0;
    return StepShape::kDecode;
  }
  const bool many =
      static_cast<double>(view.queue.size()) >= ratio_ * static_cast<double>(view.running.size());
  if (!many && ++decode_steps_ < steps_max_) return StepShape::kDecode;
  // A refused prefill step becomes a decode step: then it is tried again after as many.
  decode_steps_ = 0;
  return StepShape::kPrefill;
}

}  // namespace headrace
