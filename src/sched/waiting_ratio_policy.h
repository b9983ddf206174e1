// TGI's rule (text-generation-inference router, waiting_served_ratio): steps decode only, until
// somebody waits and either waiting >= ratio x running or max_waiting_tokens steps have passed;
// then steps compute prompts only, until all that could join have joined.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class WaitingRatioPolicy final : public QueuePolicy {
 public:
  explicit WaitingRatioPolicy(const SchedulerOptions& options)
      : ratio_(options.waiting_served_ratio), steps_max_(options.max_waiting_tokens) {}
  StepShape shape(const StepView& view) override;

 private:
  const double ratio_;
  const int32_t steps_max_;
  int32_t decode_steps_ = 0;  // since prompts were computed, with somebody waiting
};

}  // namespace headrace
