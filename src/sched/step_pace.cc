#include "sched/step_pace.h"

#include <algorithm>
#include <cmath>

namespace headrace {

int32_t StepPace::prompt_tokens_within(double seconds, const StepLoad& load, int32_t first,
                                       int32_t most) const {
  const auto fits = [&](int32_t tokens) {
    StepLoad chunk;
    chunk.add_prompt(first, tokens);
    return cost().seconds(load + chunk) <= seconds;
  };
  if (most <= 0 || fits(most)) return std::max(0, most);
  int32_t low = 0, high = most;  // fits(low) or nothing does, not fits(high)
  while (high - low > 1) {
    const int32_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

int32_t StepPace::chunk(const StepBudget& budget, int32_t first, int32_t remaining) const {
  if (!options_.chunked_prefill) return remaining <= budget.tokens_left ? remaining : 0;
  const int32_t most = std::min(remaining, budget.tokens_left);
  if (std::isinf(budget.seconds_max)) return most;
  const auto least = static_cast<int32_t>(kPromptTokensMin - budget.load.prompt_tokens);
  const int32_t in_time = prompt_tokens_within(budget.seconds_max, budget.load, first, most);
  return std::min(most, std::max(least, in_time));
}

// A step took from the end of the one before it until now, with what the host did between them;
// from its plan where there was nothing to do before.
StepPace::Measured StepPace::note_applied(const StepLoad& load, double planned_seconds,
                                          double drafting_seconds) {
  const double started =
      work_left_ ? applied_seconds_ : std::max(planned_seconds, applied_seconds_);
  applied_seconds_ = now();
  const Measured step{.seconds = applied_seconds_ - started,
                      .predicted = knows() ? cost().seconds(load) + drafting_seconds : 0};
  fit_.observe(load, step.seconds - drafting_seconds);
  // A step that was to take longer was so by choice.
  const bool keeps_target =
      step.predicted <= std::max(options_.tpot_target_seconds, options_.step_seconds_max);
  if (load.decodes > 0 && load.prompt_tokens > 0 && keeps_target) {
    chunk_overrun_.note(step.seconds, step.predicted);
  }
  return step;
}

}  // namespace headrace
