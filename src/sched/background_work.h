// Background requests (Request::background) fill what live ones leave of a step: how long a step
// with background work may take, which tokens it computes, and how much of the room was used.
//
// While a live request has work such a step stays under background.step_seconds; shortly after it,
// under background.gap_seconds; when there has been no live request for a while the step is full.
// Background requests may starve.
#pragma once

#include <cstdint>
#include <limits>
#include <span>
#include <vector>

#include "sched/scheduler.h"
#include "sched/sequence_table.h"
#include "sched/step_draft.h"
#include "sched/step_pace.h"

namespace headrace {

class BackgroundWork {
 public:
  static constexpr double kLiveLatelySeconds = 5;

  // All outlive this object.
  BackgroundWork(const SchedulerOptions& options, const SequenceTable& table, const StepPace& pace)
      : options_(options),
        table_(table),
        pace_(pace),
        beside_overrun_(1.1, options.background.over_share) {}

  // Whether a background sequence waits or runs.
  bool any() const;
  // Gives decodes and prompt chunks of the background their tokens, beside what the live sequences
  // got; `kept_for_oldest` of the budget is only for the oldest running sequence.
  void choose_tokens(StepDraft& draft, int32_t kept_for_oldest) const;
  // The rest of the step is for `first`, which may join: bounds the budget accordingly.
  void bound_rest(StepBudget& budget, const Sequence& first) const;

  // A plan is made now. While a live request has work, the time of live work is now.
  void note_live_work();
  // Counts the room that live work left in the draft while background work waited, and what the
  // background used of it.
  void note_room(const StepDraft& draft);
  // A step was applied; `sequences` are those of plan.work.
  void note_applied(const StepPlan& plan, std::span<Sequence* const> sequences,
                    const StepPace::Measured& step);
  // Fills in background_* and beside_*.
  void count(SchedulerStats& stats) const;

 private:
  double step_seconds() const;  // that a step with background work may take
  double gap_seconds() const;   // the same where no live request has work now
  int32_t prompt_tokens(const StepBudget& budget, const Sequence& sequence) const;

  const SchedulerOptions& options_;
  const SequenceTable& table_;
  const StepPace& pace_;
  StepOverrun beside_overrun_;  // of steps with background work beside live ones
  double live_seconds_ = -std::numeric_limits<double>::infinity();  // a live request had work
  double room_seconds_ = 0, used_seconds_ = 0;
  uint64_t room_tokens_ = 0, used_tokens_ = 0, computed_tokens_ = 0;
  uint64_t beside_steps_ = 0, beside_steps_over_ = 0;
  double beside_seconds_ = 0, beside_seconds_max_ = 0;
};

}  // namespace headrace
