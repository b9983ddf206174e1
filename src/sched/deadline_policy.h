// Earliest deadline first by the class's target for the first token
// (SchedulerOptions::slo_classes). A request that has missed its deadline goes behind those that
// can still keep theirs: under overload the late ones wait, instead of making all late. Where the
// prompts that wait cannot all be in time, the longest are given up until the rest are: the most
// that can be on time by one machine (Moore 1968). The late join where they take nothing from the
// others: no prompt is being computed, and the running answers leave the most of a step. After
// promote_after_steps a late one joins all the same, a few at a time.
//
// Steps are as long as the running answers can bear. An answer of n tokens is in time when its last
// comes within n times the class's target per token after its first: what it gained in short steps
// it can lose in a long one, which prompts use. An answer that just began may lose a little that it
// has not gained: few answers are so short that they cannot make up for it.
#pragma once

#include <vector>

#include "sched/policy_memory.h"
#include "sched/queue_policy.h"

namespace headrace {

class DeadlinePolicy final : public QueuePolicy {
 public:
  // Of what runs one in so many may be promoted: each is late, and takes a row from answers that
  // could be in time.
  static constexpr int32_t kRunningPerPromoted = 32;

  explicit DeadlinePolicy(const SchedulerOptions& options)
      : QueuePolicy({.may_starve = true, .running_per_promoted = kRunningPerPromoted}),
        classes_(options.slo_classes) {}
  Rank rank(const Sequence& sequence) const override;
  bool reconsider(Sequence& first, double now_seconds) override;
  Sequence* next(const StepView& view) override;
  double step_seconds(const StepView& view) const override;
  double prompt_order(const Sequence& sequence) const override {
    return memory_.of(sequence).late ? 1 : 0;
  }
  void note(SequenceEvent event, Sequence& sequence) override;

 private:
  struct State {
    bool late = false;            // or given up: behind those that can be in time
    double deadline_seconds = 0;  // for its first token
  };
  // Seconds to compute a prompt beside what runs, per token of it.
  double prompt_pace(const StepView& view) const;
  bool has_room_for_late(const StepView& view) const;
  void give_up_the_longest(const StepView& view);

  const std::vector<SloClass> classes_;
  uint64_t looked_at_step_ = 0;
  PolicyMemory<State> memory_;
};

}  // namespace headrace
