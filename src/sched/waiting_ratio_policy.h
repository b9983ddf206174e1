// TGI's rule (text-generation-inference router, waiting_served_ratio): steps decode only, until
// a request waits and either waiting >= ratio x running or max_waiting_tokens steps have passed;
// then steps compute prompts only, until all that could join have joined. Answers of one token give
// their slots back, so that others can always join: a step of decodes comes after as many of
// prompts as there are slots.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class WaitingRatioPolicy final : public QueuePolicy {
 public:
  explicit WaitingRatioPolicy(const SchedulerOptions& options)
      : ratio_(options.waiting.served_ratio),
        steps_max_(options.waiting.max_tokens),
        prefill_steps_max_(options.max_num_seqs) {}
  StepShape shape(const StepView& view) override;

 private:
  bool begins_prompts(const StepView& view);

  const double ratio_;
  const int32_t steps_max_;
  const int32_t prefill_steps_max_;
  int32_t decode_steps_ = 0;   // since prompts were computed, while a request waited
  int32_t prefill_steps_ = 0;  // in a row
};

}  // namespace headrace
