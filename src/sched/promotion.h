// Promotion: under a policy that reorders the queue, a sequence that went promote_after_steps plans
// without work goes to the front, before all that are not promoted, and stays there until it ends.
#pragma once

#include <cstdint>

#include "sched/displacement.h"
#include "sched/queue_policy.h"
#include "sched/scheduler.h"
#include "sched/sequence_table.h"

namespace headrace {

class Promotion {
 public:
  // All outlive this object.
  Promotion(const SchedulerOptions& options, const QueuePolicy& policy, SequenceTable& table,
            const Displacement& displacement)
      : options_(options), policy_(policy), table_(table), displacement_(displacement) {}

  // Promotes the sequences whose time has come in plan `step`.
  void promote_starving(uint64_t step);
  uint64_t promotions() const { return promotions_; }

 private:
  bool may_promote() const;
  int64_t promoted_count() const;
  Sequence* longest_without_work() const;

  const SchedulerOptions& options_;
  const QueuePolicy& policy_;
  SequenceTable& table_;
  const Displacement& displacement_;
  uint64_t promotions_ = 0;
};

}  // namespace headrace
