// Prompts before decodes, in steps of their own: a step computes prompts as long as there are any
// that fit, and only then do answers go on. First come first served. What engines did before
// chunked prefill (vLLM before 2024): the best time to the first token, and answers that stall
// whenever somebody arrives. A baseline.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class PrefillFirstPolicy final : public QueuePolicy {
 public:
  StepShape shape(const StepView& view) override;
};

}  // namespace headrace
