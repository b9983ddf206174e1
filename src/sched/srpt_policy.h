// Shortest remaining declared answer first, and it takes slots of those that have more to go. For
// clients that know how long their answers get; with true lengths declared it is the clairvoyant
// order that mlfq, which knows nothing, is measured against.
#pragma once

#include "sched/queue_policy.h"

namespace headrace {

class SrptDeclaredPolicy final : public QueuePolicy {
 public:
  SrptDeclaredPolicy() : QueuePolicy({.may_starve = true, .displacement_share = 0.03}) {}
  Rank rank(const Sequence& sequence) const override;
  bool preempts(const Sequence& waiting, const Sequence& running, double) const override;
  bool served(Sequence&, const Service&) override { return true; }  // less remains
};

}  // namespace headrace
