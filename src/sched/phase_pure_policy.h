// Steps of one phase only, on one device (disaggregation's level 0): prompts as long as there are
// any, but no more than kPrefillStepsMax such steps in a row beside running decodes.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class PhasePurePolicy final : public QueuePolicy {
 public:
  static constexpr int32_t kPrefillStepsMax = 4;
  StepShape shape(const StepView& view) override;

 private:
  int32_t prefill_steps_ = 0;  // in a row
};

}  // namespace headrace
