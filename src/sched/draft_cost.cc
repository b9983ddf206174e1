#include "sched/draft_cost.h"

#include <algorithm>

namespace headrace {

void DraftCost::observe(const StepResult::Drafting& drafting) {
  if (drafting.seconds <= 0 || drafting.passes <= 0) return;
  const double passes = drafting.passes, rows = drafting.rows;
  double took = drafting.seconds;
  if (knows()) took = std::min(took, kOutlier * seconds(passes, rows));
  if (took <= 0) return;
  constexpr double kKeep = 1 - 1 / kMemory;
  const double weight = 1 / (took * took);
  passes_passes_ = kKeep * passes_passes_ + weight * passes * passes;
  passes_rows_ = kKeep * passes_rows_ + weight * passes * rows;
  rows_rows_ = kKeep * rows_rows_ + weight * rows * rows;
  passes_seconds_ = kKeep * passes_seconds_ + weight * passes * took;
  rows_seconds_ = kKeep * rows_seconds_ + weight * rows * took;
  ++steps_;
  solve();
}

// While all steps had as many rows a pass, the two are not told apart: the ridge shares the cost
// out.
void DraftCost::solve() {
  constexpr double kRidge = 1e-4;
  const double pp = passes_passes_ * (1 + kRidge), rr = rows_rows_ * (1 + kRidge);
  const double determinant = pp * rr - passes_rows_ * passes_rows_;
  per_pass_ = (passes_seconds_ * rr - rows_seconds_ * passes_rows_) / determinant;
  per_row_ = (rows_seconds_ * pp - passes_seconds_ * passes_rows_) / determinant;
  if (per_pass_ < 0) per_pass_ = 0, per_row_ = rows_seconds_ / rows_rows_;
  if (per_row_ < 0) per_row_ = 0, per_pass_ = passes_seconds_ / passes_passes_;
}

}  // namespace headrace
