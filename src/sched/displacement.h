// Which running sequence gives way to a waiting one that is to join, and what that may cost:
// computing again what was displaced takes at most a share of the machine's time (decision 19).
#pragma once

#include "sched/queue_policy.h"
#include "sched/sequence.h"
#include "sched/sequence_table.h"
#include "sched/step_pace.h"

namespace headrace {

class Displacement {
 public:
  // All outlive this object.
  Displacement(const QueuePolicy& policy, const SequenceTable& table, const StepPace& pace)
      : policy_(policy), table_(table), pace_(pace) {}

  // The youngest running sequence that gives way to `head`; null: none does.
  Sequence* victim_for(const Sequence& head) const;
  // Whether what the policy's preemptions have cost leaves room for more.
  bool affordable() const;
  // Seconds that they may still cost; negative: none, until so many were earned.
  double seconds_left() const { return seconds_left_; }

  // A step took so long: a share of that is earned.
  void earn(double step_seconds);
  // `head` joins, with so many of its tokens in the prefix cache: where it was displaced, the rest
  // is computed again at the cost of all.
  void charge(Sequence& head, int32_t found_tokens);

 private:
  bool displaces(const Sequence& head, const Sequence& running) const;
  double again_seconds(const Sequence& running) const;

  const QueuePolicy& policy_;
  const SequenceTable& table_;
  const StepPace& pace_;
  double seconds_left_ = 0;
  double lost_share_ = 0;  // of the tokens of those that came back lately, what was not found
};

}  // namespace headrace
