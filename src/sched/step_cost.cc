#include "sched/step_cost.h"

#include <algorithm>
#include <cmath>
#include <optional>

namespace headrace {
namespace {

// A step that took this much longer than predicted says more about the machine's other work than
// about its own: it counts as this.
constexpr double kOutlier = 4;
constexpr int64_t kSolveEvery = 8;

constexpr double kOverrunPart = 0.01, kOverrunMax = 2;
constexpr double kExact = 1e-6;  // where time is virtual, predictions are right but for rounding

}  // namespace

void StepOverrun::note(double seconds, double predicted) {
  if (predicted <= 0) return;
  const bool longer = seconds / predicted > ratio_ + kExact;
  const double up = longer ? 1 - over_share_ : -over_share_;
  ratio_ = std::clamp(ratio_ + up * kOverrunPart, 1.0, kOverrunMax);
}

void StepLoad::add(const Work& work) {
  if (work.samples && work.count == 1 + work.proposal_count()) {
    for (int32_t i = 0; i < work.count; ++i) add_decode(work.first + i);
  } else {
    add_prompt(work.first, work.count);
  }
}

StepLoad StepLoad::of(const StepPlan& plan) {
  StepLoad load;
  for (const Work& work : plan.work) load.add(work);
  return load;
}

StepLoad StepLoad::left_out(const StepPlan& plan, const StepResult& result) {
  StepLoad load;
  size_t row = 0;
  for (const Work& work : plan.work) {
    if (work.drafted == 0) continue;
    while (row < result.rows.size() && result.rows[row].sequence != work.sequence) ++row;
    const int32_t computed =
        row < result.rows.size() ? result.rows[row].drafted.size() : work.drafted;
    for (int32_t i = computed + 1; i <= work.drafted; ++i) load.add_decode(work.first + i);
  }
  return load;
}

void StepCostFit::observe(const StepLoad& load, double seconds) {
  if (seconds <= 0) return;
  double typical = seconds;
  if (knows()) {
    const double predicted = cost_.seconds(load);
    const double error = std::abs(predicted - seconds) / seconds;
    const double share =
        1.0 / static_cast<double>(std::min<int64_t>(steps_ - kStepsMin + 1, kMemory));
    error_ += share * (error - error_);
    if (predicted > 0) seconds = std::min(seconds, kOutlier * predicted);
    typical = std::max(predicted, seconds / kOutlier);
  }
  Vector x;
  for (size_t i = 0; i < kTerms; ++i) x[i] = kStepCostTerms[i].amount(load);
  // Relative to what such a step takes as a rule: relative to what this one took, steps that were
  // faster by chance would count for more, and the cost would come out low (by 4 % where steps
  // scatter by 15 %).
  const double weight = 1 / (typical * typical);
  constexpr double kKeep = 1 - 1.0 / kMemory;
  for (size_t i = 0; i < kTerms; ++i) {
    for (size_t j = 0; j <= i; ++j) normal_[i][j] = kKeep * normal_[i][j] + weight * x[i] * x[j];
    target_[i] = kKeep * target_[i] + weight * x[i] * seconds;
  }
  ++steps_;
  if (steps_ <= 4 * kStepsMin || steps_ % kSolveEvery == 0) solve();
}

// Cholesky on the terms in use; a term that comes out negative is dropped, the worst first, and the
// rest is solved again.
void StepCostFit::solve() {
  std::array<size_t, kTerms> terms{};  // [0, count) are in use
  size_t count = 0;
  for (size_t i = 0; i < kTerms; ++i) {
    if (normal_[i][i] > 0) terms[count++] = i;
  }
  // Scaled to a unit diagonal, with a ridge: terms that were never seen apart share their cost.
  constexpr double kRidge = 1e-6;
  std::array<Vector, kTerms> scaled{}, lower{};
  for (size_t a = 0; a < count; ++a) {
    const size_t i = terms[a];
    for (size_t b = 0; b <= a; ++b) {
      const size_t j = terms[b];
      scaled[i][j] = normal_[i][j] / std::sqrt(normal_[i][i] * normal_[j][j]);
    }
    scaled[i][i] += kRidge;
  }
  Vector result{};  // of the terms in use
  while (true) {
    for (size_t i = 0; i < count; ++i) {
      for (size_t j = 0; j <= i; ++j) {
        double sum = scaled[terms[i]][terms[j]];
        for (size_t k = 0; k < j; ++k) sum -= lower[i][k] * lower[j][k];
        lower[i][j] = i == j ? std::sqrt(std::max(sum, kRidge)) : sum / lower[j][j];
      }
    }
    for (size_t i = 0; i < count; ++i) {
      double sum = target_[terms[i]] / std::sqrt(normal_[terms[i]][terms[i]]);
      for (size_t k = 0; k < i; ++k) sum -= lower[i][k] * result[k];
      result[i] = sum / lower[i][i];
    }
    for (size_t i = count; i-- > 0;) {
      double sum = result[i];
      for (size_t k = i + 1; k < count; ++k) sum -= lower[k][i] * result[k];
      result[i] = sum / lower[i][i];
    }
    const auto worst = std::min_element(result.begin(), result.begin() + count);
    if (worst == result.begin() + count || *worst >= 0) break;
    const auto dropped = terms.begin() + (worst - result.begin());
    std::copy(dropped + 1, terms.begin() + count, dropped);
    --count;
  }
  cost_ = {};
  for (size_t i = 0; i < count; ++i) {
    const double scale = std::sqrt(normal_[terms[i]][terms[i]]);
    cost_.*kStepCostTerms[terms[i]].coefficient = result[i] / scale;
  }
}

}  // namespace headrace
