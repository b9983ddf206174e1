// Classes by Request::priority, lower value first (vLLM's polarity) or higher first (SGLang's),
// first come first served inside a class. A waiting request of a better class takes slots and pages
// of what runs in a worse one.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class PriorityPolicy final : public QueuePolicy {
 public:
  explicit PriorityPolicy(const SchedulerOptions& options)
      : QueuePolicy({.may_starve = true}), sign_(options.higher_priority_first ? -1 : 1) {}
  Rank rank(const Sequence& sequence) const override;
  bool preempts(const Sequence& waiting, const Sequence& running, double) const override;

 private:
  const int64_t sign_;
};

}  // namespace headrace
