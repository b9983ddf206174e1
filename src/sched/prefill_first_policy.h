// Prompts before decodes, in steps of their own: a step computes prompts as long as there are any
// that fit, and only then do answers go on. First come first served. What engines did before
// chunked prefill (vLLM before 2024): the best time to the first token, and answers that stall
// whenever a request arrives. It is a baseline. A run of prompts ends when slots run out; answers
// of one token give theirs back at once, so a step of decodes comes after as many of prompts as
// there are slots.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class PrefillFirstPolicy final : public QueuePolicy {
 public:
  explicit PrefillFirstPolicy(const SchedulerOptions& options)
      : prefill_steps_max_(options.max_num_seqs) {}
  StepShape shape(const StepView& view) override;

 private:
  const int32_t prefill_steps_max_;
  int32_t prefill_steps_ = 0;  // in a row
};

}  // namespace headrace
