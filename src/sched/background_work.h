// Background requests (Request::background) fill what all others leave of a step: how long a step
// with their work may take, what they get of it, and what they made of it.
//
// While anybody live has work such a step stays under background_step_seconds; shortly after, under
// background_gap_seconds; where nobody live has been for a while it is full. They may starve.
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
        beside_overrun_(1.1, options.background_over_share) {}

  // Whether somebody of the background waits or runs.
  bool any() const;
  // Tokens of its next decodes and prompt chunks, beside what the live got; `kept_for_oldest` of
  // them only for the oldest of all that runs.
  void choose_tokens(StepDraft& draft, int32_t kept_for_oldest) const;
  // The rest of the step is for who joins from the background: it is no longer than that allows.
  void bound_rest(StepBudget& budget, const Sequence& first) const;

  // A plan is made now: there may be live work.
  void note_live_work();
  // What live work left of the draft while more background work waited than could run, and how much
  // of that it took.
  void note_room(const StepDraft& draft);
  // A step with `sequences` as its works was applied.
  void note_applied(const StepPlan& plan, std::span<Sequence* const> sequences,
                    const StepPace::Measured& step);
  // Its counters: background_* and beside_*.
  void count(SchedulerStats& stats) const;

 private:
  double step_seconds() const;  // that a step with background work may take
  double gap_seconds() const;   // the same where nobody live has work now
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
