// OpenPPL's rule (ppl.llm.serving's generator): first come first served. A request joins with all
// the pages that it can ever need, so that nothing is preempted, and with room in the step for its
// whole prompt; so many join a step at most. When the head of the queue finds no pages,
// AdmissionControl's hold keeps the queue closed until some have finished.
//
// OpenPPL refuses a prompt that is longer than a step. Here it joins as the others do once the step
// has room for any of it, and is the only one that is cut.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class OpenPplPolicy final : public QueuePolicy {
 public:
  explicit OpenPplPolicy(const SchedulerOptions& options)
      : QueuePolicy({.holds_after_refusal = true}),
        joining_max_(options.openppl.joining_max),
        step_tokens_max_(options.max_num_batched_tokens) {}
  bool admits(const BatchView& batch) const override;
  int32_t reserved_length(Sequence& sequence) override;

 private:
  const int32_t joining_max_;
  const int32_t step_tokens_max_;
};

}  // namespace headrace
