#include "sched/waiting_ratio_policy.h"

#include <algorithm>

namespace headrace {

StepShape WaitingRatioPolicy::shape(const StepView& view) {
  const auto prefills = std::count_if(view.running.begin(), view.running.end(),
                                      [](const Sequence* s) { return s->is<Prefilling>(); });
  const bool answers_wait = prefills < static_cast<ptrdiff_t>(view.running.size());
  if (answers_wait && prefill_steps_ >= prefill_steps_max_) {
    prefill_steps_ = 0;
    return StepShape::kDecode;
  }
  const bool prompts = prefills > 0 || begins_prompts(view);
  prefill_steps_ = prompts ? prefill_steps_ + 1 : 0;
  return prompts ? StepShape::kPrefill : StepShape::kDecode;
}

bool WaitingRatioPolicy::begins_prompts(const StepView& view) {
  if (view.queue.empty() || view.free_slots == 0) {
    decode_steps_ = 0;
    return false;
  }
  const bool many =
      static_cast<double>(view.queue.size()) >= ratio_ * static_cast<double>(view.running.size());
  if (!many && ++decode_steps_ < steps_max_) return false;
  // A refused prefill step becomes a decode step: then it is tried again after as many.
  decode_steps_ = 0;
  return true;
}

}  // namespace headrace
