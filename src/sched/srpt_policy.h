// Shortest remaining declared answer first, and it takes slots of those who have more to go. For
// clients that know how long their answers get; with true lengths declared it is the clairvoyant
// order that mlfq, which knows nothing, is measured against.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class SrptDeclaredPolicy final : public QueuePolicy {
 public:
  Rank rank(const Sequence& sequence) const override;
  bool may_starve() const override { return true; }
  bool preempts(const Sequence& waiting, const Sequence& running) const override;
  double displacement_share() const override { return 0.03; }
  bool served(Sequence&, int32_t, int32_t) override { return true; }  // less remains
};

}  // namespace headrace
