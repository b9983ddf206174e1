// OpenPPL's rule (ppl.llm.serving): first come first served; a request joins only with all the
// pages that it can ever need, so nothing is preempted; caps on the prompts computed at a time and
// on what runs. When the head of the queue finds no pages, AdmissionControl's hold keeps the queue
// closed until some have finished.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class OpenPplPolicy final : public QueuePolicy {
 public:
  explicit OpenPplPolicy(const SchedulerOptions& options)
      : QueuePolicy({.holds_after_refusal = true}), prefilling_max_(options.max_prefill_seqs) {}
  bool admits(const BatchView& batch) const override;
  int32_t reserved_length(Sequence& sequence) override;

 private:
  const int32_t prefilling_max_;
};

}  // namespace headrace
