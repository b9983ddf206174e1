#include "engine/model_work.h"

#include <algorithm>
#include <cmath>

namespace headrace {
namespace {

int64_t logit_rows(const Work& work) {
  if (work.rows == LogitRows::kNone) return 0;
  if (work.rows == LogitRows::kAll) return work.count;
  return 1 + work.proposal_count();
}

// Keys that the rows of positions [first, first + count) attend to, summed; each sees itself and
// what is before it, `window` of them at most (0: all).
double attended_keys(double first, double count, double window) {
  if (window <= 0) return count * first + count * (count + 1) / 2;
  const double growing = std::clamp(window - first, 0.0, count);  // rows that see all before them
  return growing * first + growing * (growing + 1) / 2 + (count - growing) * window;
}

double seen_keys(double first, double count, double window) {
  return window <= 0 ? first + count : std::min(first + count, window + count - 1);
}

}  // namespace

StepWork work_of(const StepPlan& plan, const ModelWork& model) {
  StepWork step;
  double rows = 0, logits = 0;
  for (const Work& work : plan.work) {
    rows += work.count;
    logits += static_cast<double>(logit_rows(work));
    for (const ModelWork::Attention& layers : model.attention) {
      step.operations +=
          layers.operations_per_key * attended_keys(work.first, work.count, layers.window);
      step.read_bytes += layers.key_bytes * seen_keys(work.first, work.count, layers.window);
      step.written_bytes += layers.key_bytes * work.count;
    }
  }
  if (rows == 0) return step;
  step.operations += rows * (model.operations_per_row + model.experts.operations_per_row);
  step.operations += logits * model.operations_per_logits;
  step.read_bytes += model.weight_bytes + (logits > 0 ? model.output_bytes : 0);
  const double untouched = std::pow(1 - model.experts.used_share, rows);
  step.read_bytes += model.experts.bytes * (1 - untouched);
  return step;
}

}  // namespace headrace
