// What a step costs: a linear model of the work in it, and its fit from steps that were measured.
// The ceiling on prompt chunks, the room that live traffic leaves for background work and the
// replay of traces all ask the same model.
#pragma once

#include <algorithm>
#include <array>
#include <cstdint>

#include "sched/step_plan.h"

namespace headrace {

// The work of a step, counted.
struct StepLoad {
  double prompt_tokens = 0;
  double decodes = 0;
  double kv_tokens = 0;       // keys and values that decodes read
  double prompt_context = 0;  // sum over prompt tokens of the keys that each attends to

  // Up to so many rows the matrices' weights are what a step waits for; more cost arithmetic too.
  static constexpr double kRowsFree = 192;
  double rows_over() const { return std::max(0.0, prompt_tokens + decodes - kRowsFree); }

  void add(const Work& work);
  static StepLoad of(const StepPlan& plan);
  friend StepLoad operator+(StepLoad a, const StepLoad& b) {
    a.prompt_tokens += b.prompt_tokens;
    a.decodes += b.decodes;
    a.kv_tokens += b.kv_tokens;
    a.prompt_context += b.prompt_context;
    return a;
  }
};

// Seconds: base + what the load adds. The matrices' weights are read once a step (base).
struct StepCost {
  double base = 0;
  double per_prompt_token = 0;
  double per_decode = 0;
  double per_kv_token = 0;
  double per_prompt_context = 0;
  double per_row_over = 0;  // beyond StepLoad::kRowsFree

  double seconds(const StepLoad& load) const {
    return base + load.prompt_tokens * per_prompt_token + load.decodes * per_decode +
           load.kv_tokens * per_kv_token + load.prompt_context * per_prompt_context +
           load.rows_over() * per_row_over;
  }
};

// By name, as files and metrics have them.
struct StepCostField {
  const char* name;
  double StepCost::*member;
};
inline constexpr std::array<StepCostField, 6> kStepCostFields = {{
    {"base", &StepCost::base},
    {"per_prompt_token", &StepCost::per_prompt_token},
    {"per_decode", &StepCost::per_decode},
    {"per_kv_token", &StepCost::per_kv_token},
    {"per_prompt_context", &StepCost::per_prompt_context},
    {"per_row_over", &StepCost::per_row_over},
}};

// Least squares of the relative error, with no coefficient below zero, over the last kMemory steps
// or so (exponential forgetting). One thread.
class StepCostFit {
 public:
  static constexpr int kMemory = 1000;
  static constexpr int64_t kStepsMin = 16;  // before that nothing is known

  // Steps that took no time (a clock that stands still) are left out.
  void observe(const StepLoad& load, double seconds);
  bool knows() const { return steps_ >= kStepsMin; }
  const StepCost& cost() const { return cost_; }
  int64_t steps() const { return steps_; }
  // Mean of |predicted - measured| / measured, each step predicted before it was learned; over the
  // last kMemory or so.
  double error() const { return error_; }

 private:
  static constexpr size_t kTerms = 6;
  using Vector = std::array<double, kTerms>;
  void solve();

  std::array<Vector, kTerms> normal_{};  // sum of w x x^T
  Vector target_{};                      // sum of w x seconds
  StepCost cost_;
  int64_t steps_ = 0;
  double error_ = 0;
};

}  // namespace headrace
