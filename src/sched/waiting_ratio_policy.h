// TGI's rule (text-generation-inference's router, waiting_served_ratio and max_waiting_tokens):
// steps decode, until somebody waits and either waiting >= max(1, floor(ratio x running)) or there
// were so many steps since the last prefill, whether somebody waited in them or not. Then comes one
// prefill: the requests that fit into a step join, their prompts are computed alone, and nobody
// else joins until they are; then a decode. An idle engine prefills at once. Where nobody can join
// the next step tries again.
//
// TGI computes a prefill in one call. Here a prompt that is longer than a step takes several; of
// prompts after prompts as many as there are slots, then a decode goes between.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class WaitingRatioPolicy final : public QueuePolicy {
 public:
  explicit WaitingRatioPolicy(const SchedulerOptions& options)
      : ratio_(options.waiting.served_ratio),
        steps_max_(options.waiting.max_tokens),
        prefill_steps_max_(options.max_num_seqs) {}
  bool admits(const BatchView& batch) const override;
  StepShape shape(const StepView& view) override;
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  bool begins_prefill(const StepView& view) const;
  StepShape decode();

  const double ratio_;
  const int32_t steps_max_;
  const int32_t prefill_steps_max_;
  int32_t steps_since_prefill_ = 0;
  int32_t prefill_steps_ = 0;  // in a row
  int32_t joined_ = 0;         // since the last plan
  bool open_ = true;           // this step begins a prefill: requests may join
};

}  // namespace headrace
