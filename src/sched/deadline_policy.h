// Earliest deadline first by the class's target for the first token
// (SchedulerOptions::slo_classes). Who has already missed his deadline goes behind those who can
// still keep theirs: under overload the late ones wait, instead of making everybody late. Where the
// prompts that wait cannot all be in time, the longest are given up until the rest are: the most
// that can be on time by one machine (Moore 1968).
//
// Steps are as long as the running answers can bear. An answer of n tokens is in time when its last
// comes within n times the class's target per token after its first: what it gained in short steps
// it can lose in a long one, which prompts use. An answer that just began may lose a little that it
// has not gained: few answers are so short that they cannot make up for it.
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
  Sequence* next(const StepView& view) override;
  double step_seconds(const StepView& view) const override;
  double prompt_order(const Sequence& sequence) const override { return sequence.policy.level; }

 private:
  // Seconds to compute a prompt beside what runs, per token of it.
  double prompt_pace(const StepView& view) const;
  void give_up_the_longest(const StepView& view) const;

  const std::vector<SloClass> classes_;
  uint64_t looked_at_step_ = 0;
};

}  // namespace headrace
