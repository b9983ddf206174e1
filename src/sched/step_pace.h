// How long steps take: as measured with the clock, as predicted for a step that is planned, and how
// much of a prompt fits into the time that a step has.
#pragma once

#include <cstdint>

#include "base/clock.h"
#include "sched/scheduler.h"
#include "sched/step_cost.h"
#include "sched/step_draft.h"

namespace headrace {

class StepPace {
 public:
  // All prompts of a step together get so many tokens, whatever its decodes are promised.
  static constexpr int32_t kPromptTokensMin = 16;

  // `options` outlives this object.
  explicit StepPace(const SchedulerOptions& options) : options_(options) {}

  double now() const { return options_.clock == nullptr ? 0 : options_.clock->now_seconds(); }
  bool knows() const { return fit_.knows(); }
  const StepCost* known_cost() const { return fit_.knows() ? &fit_.cost() : nullptr; }
  const StepCost& cost() const { return fit_.cost(); }  // zeros while nothing is known
  double error() const { return fit_.error(); }
  double applied_seconds() const { return applied_seconds_; }  // when the last step was applied

  // The target of time per token, less what such steps take longer than predicted.
  double tpot_seconds() const { return options_.tpot_target_seconds / chunk_overrun_.ratio(); }
  // The bound of full steps, less the same.
  double full_step_seconds() const { return options_.step_seconds_max / chunk_overrun_.ratio(); }
  // Tokens of a prompt, from `first` on and at most `most`, with which a step that has `load` takes
  // no longer than `seconds`.
  int32_t prompt_tokens_within(double seconds, const StepLoad& load, int32_t first,
                               int32_t most) const;
  // A prompt's next tokens, from `first` on, under the budget that is left.
  int32_t chunk(const StepBudget& budget, int32_t first, int32_t remaining) const;

  struct Measured {
    double seconds = 0, predicted = 0;  // predicted 0: nothing was known
  };
  // The oldest step in flight, which has `load` and was planned at `planned_seconds`, ends now.
  // `drafting_seconds` of its time went to a draft model, which `load` says nothing of.
  Measured note_applied(const StepLoad& load, double planned_seconds, double drafting_seconds);
  // Whether there is work when a step was applied: then the next one begins at once.
  void note_work_left(bool work_left) { work_left_ = work_left; }

 private:
  const SchedulerOptions& options_;
  StepCostFit fit_;
  StepOverrun chunk_overrun_{1.0, 0.1};  // of steps whose prompts keep to tpot_target_seconds
  double applied_seconds_ = 0;
  bool work_left_ = false;
};

}  // namespace headrace
