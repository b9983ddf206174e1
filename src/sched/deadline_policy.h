// Earliest deadline first by the class's target for the first token
// (SchedulerOptions::slo_classes). Who has already missed his deadline goes behind those who can
// still keep theirs: under overload the late ones wait, instead of making everybody late.
#pragma once

#include <vector>

#include "sched/queue_policy.h"

namespace headrace {

class DeadlinePolicy final : public QueuePolicy {
 public:
  explicit DeadlinePolicy(const SchedulerOptions& options) : classes_(options.slo_classes) {}
  Rank rank(const Sequence& sequence) const override;
  bool may_starve() const override { return true; }
  void arrived(Sequence& sequence) override;
  bool reconsider(Sequence& first, double now_seconds) override;

 private:
  const std::vector<SloClass> classes_;
};

}  // namespace headrace
