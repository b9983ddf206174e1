// What a draft model's passes take, as the runner measured them.
#pragma once

#include "sched/step_plan.h"

namespace headrace {

// Seconds = passes x per_pass + rows x per_row: least squares of the relative error, neither below
// zero, over the last kMemory steps or so (exponential forgetting). One thread.
class DraftCost {
 public:
  // Steps that took no time (a clock that stands still) are left out.
  void observe(const StepResult::Drafting& drafting);
  bool knows() const { return steps_ > 0; }
  double per_pass() const { return per_pass_; }
  double per_row() const { return per_row_; }
  double seconds(double passes, double rows) const { return passes * per_pass_ + rows * per_row_; }

 private:
  static constexpr double kMemory = 1000;
  static constexpr double kOutlier = 4;  // a step that took so many times longer counts as this
  void solve();

  double passes_passes_ = 0, passes_rows_ = 0, rows_rows_ = 0, passes_seconds_ = 0,
         rows_seconds_ = 0;  // sums
  double per_pass_ = 0, per_row_ = 0;
  int64_t steps_ = 0;
};

}  // namespace headrace
