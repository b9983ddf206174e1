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

  double rows() const { return prompt_tokens + decodes; }
  // Up to so many rows a GPU waits for the matrices' weights; more cost arithmetic too.
  static constexpr double kRowsFree = 192;
  double rows_over() const { return std::max(0.0, rows() - kRowsFree); }
  // Of the rows from `low` to `high`, the share that is there.
  double share_of_rows(double low, double high) const {
    return std::clamp((rows() - low) / (high - low), 0.0, 1.0);
  }

  // A decode of token `first`; a chunk of `count` prompt tokens from `first` on.
  void add_decode(int32_t first) {
    ++decodes;
    kv_tokens += first + 1;
  }
  void add_prompt(int32_t first, int32_t count) {
    const double tokens = count;
    prompt_tokens += tokens;
    prompt_context += tokens * first + tokens * (tokens + 1) / 2;
  }
  void add(const Work& work);
  static StepLoad of(const StepPlan& plan);
  // Of a plan's work what the runner did not compute, because it proposed fewer tokens than it
  // might.
  static StepLoad left_out(const StepPlan& plan, const StepResult& result);
  friend StepLoad operator+(StepLoad a, const StepLoad& b) {
    a.prompt_tokens += b.prompt_tokens;
    a.decodes += b.decodes;
    a.kv_tokens += b.kv_tokens;
    a.prompt_context += b.prompt_context;
    return a;
  }
  friend StepLoad operator-(StepLoad a, const StepLoad& b) {
    a.prompt_tokens -= b.prompt_tokens;
    a.decodes -= b.decodes;
    a.kv_tokens -= b.kv_tokens;
    a.prompt_context -= b.prompt_context;
    return a;
  }
};

// Seconds: base + what the load adds. The matrices' weights are read once a step (base). Products
// of few rows cost other than their share of many (kernels for few rows, tiles that are not full):
// what the rows up to 128 add beyond their number is told in five parts, each of its own range, and
// by the two steps where a CPU's tile of 8 rows is full and where its kernels for few rows end
// (SmolLM2 on two cores: 8 rows 4.3 ms, 9 rows 6.2; 16 rows 10.0, 17 rows 12.4).
struct StepCost {
  double base = 0;
  double per_prompt_token = 0;
  double per_decode = 0;
  double per_kv_token = 0;
  double per_prompt_context = 0;
  double per_row_over = 0;  // beyond StepLoad::kRowsFree
  double rows_4_to_8 = 0, rows_8_to_16 = 0, rows_16_to_32 = 0, rows_32_to_64 = 0,
         rows_64_to_128 = 0;
  double rows_over_8 = 0, rows_over_16 = 0;

  double seconds(const StepLoad& load) const;
  // What a token of a prompt adds to a step whose rows are all paid for.
  double seconds_per_prompt_token() const { return per_prompt_token + per_row_over; }
};

// The terms of the sum: name, as files and metrics have it; coefficient; how much of it a load has.
struct StepCostTerm {
  const char* name;
  double StepCost::*coefficient;
  double (*amount)(const StepLoad& load);
};
inline constexpr std::array<StepCostTerm, 13> kStepCostTerms = {{
    {"base", &StepCost::base, [](const StepLoad&) { return 1.0; }},
    {"per_prompt_token", &StepCost::per_prompt_token,
     [](const StepLoad& load) { return load.prompt_tokens; }},
    {"per_decode", &StepCost::per_decode, [](const StepLoad& load) { return load.decodes; }},
    {"per_kv_token", &StepCost::per_kv_token, [](const StepLoad& load) { return load.kv_tokens; }},
    {"per_prompt_context", &StepCost::per_prompt_context,
     [](const StepLoad& load) { return load.prompt_context; }},
    {"per_row_over", &StepCost::per_row_over,
     [](const StepLoad& load) { return load.rows_over(); }},
    {"rows_4_to_8", &StepCost::rows_4_to_8,
     [](const StepLoad& load) { return load.share_of_rows(4, 8); }},
    {"rows_8_to_16", &StepCost::rows_8_to_16,
     [](const StepLoad& load) { return load.share_of_rows(8, 16); }},
    {"rows_16_to_32", &StepCost::rows_16_to_32,
     [](const StepLoad& load) { return load.share_of_rows(16, 32); }},
    {"rows_32_to_64", &StepCost::rows_32_to_64,
     [](const StepLoad& load) { return load.share_of_rows(32, 64); }},
    {"rows_64_to_128", &StepCost::rows_64_to_128,
     [](const StepLoad& load) { return load.share_of_rows(64, 128); }},
    {"rows_over_8", &StepCost::rows_over_8,
     [](const StepLoad& load) { return load.rows() > 8 ? 1.0 : 0.0; }},
    {"rows_over_16", &StepCost::rows_over_16,
     [](const StepLoad& load) { return load.rows() > 16 ? 1.0 : 0.0; }},
}};

inline double StepCost::seconds(const StepLoad& load) const {
  double sum = 0;
  for (const StepCostTerm& term : kStepCostTerms)
    sum += this->*term.coefficient * term.amount(load);
  return sum;
}

// How much longer than predicted steps of one kind take: follows the ratio that all but
// `over_share` of them stay below (a quantile by stochastic approximation, Robbins and Monro 1951):
// of a hundred parts it goes down by over_share where a step kept it and up by the rest where one
// did not. The mean error of all steps would be of other kinds too, and of what other programs did
// once.
class StepOverrun {
 public:
  // REQUIRES: ratio >= 1, over_share in (0, 1]
  StepOverrun(double ratio, double over_share) : over_share_(over_share), ratio_(ratio) {}
  double ratio() const { return ratio_; }  // at least 1
  void note(double seconds, double predicted);

 private:
  const double over_share_;
  double ratio_;
};

// Least squares of the relative error, with no coefficient below zero, over the last kMemory steps
// or so (exponential forgetting). One thread.
class StepCostFit {
 public:
  static constexpr int kMemory = 4000;
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
  static constexpr size_t kTerms = kStepCostTerms.size();
  using Vector = std::array<double, kTerms>;
  void solve();

  std::array<Vector, kTerms> normal_{};  // sum of w x x^T; its lower triangle
  Vector target_{};                      // sum of w x seconds
  StepCost cost_;
  int64_t steps_ = 0;
  double error_ = 0;
};

}  // namespace headrace
