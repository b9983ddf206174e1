#include "sched/step_cost.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace headrace::step_cost_test {
namespace {

constexpr StepCost kTruth{.base = 4.5e-3,
                          .per_prompt_token = 4e-6,
                          .per_decode = 9e-6,
                          .per_kv_token = 0.03e-6,
                          .per_prompt_context = 1e-9,
                          .per_row_over = 16.5e-6};

StepLoad random_load(Rng& rng) {
  StepLoad load;
  load.decodes = static_cast<double>(rng.below(200));
  load.kv_tokens = load.decodes * static_cast<double>(rng.between(50, 2000));
  if (rng.below(2) == 0) load.prompt_tokens = static_cast<double>(rng.between(1, 2048));
  load.prompt_context = load.prompt_tokens * static_cast<double>(rng.between(1, 8000));
  return load;
}

TEST(StepCost, CountsWhatAPlanHolds) {
  StepPlan plan;
  plan.work.push_back({.first = 99, .count = 1, .samples = true});
  plan.work.push_back({.first = 10, .count = 4});
  const StepLoad load = StepLoad::of(plan);
  EXPECT_EQ(load.decodes, 1);
  EXPECT_EQ(load.kv_tokens, 100);
  EXPECT_EQ(load.prompt_tokens, 4);
  EXPECT_EQ(load.prompt_context, 11 + 12 + 13 + 14);
}

TEST(StepCostFit, FindsTheCostOfStepsThroughNoise) {
  Rng rng(7);
  StepCostFit fit;
  EXPECT_FALSE(fit.knows());
  for (int i = 0; i < 2000; ++i) {
    const StepLoad load = random_load(rng);
    fit.observe(load, kTruth.seconds(load) * (0.95 + 0.1 * rng.uniform()));
  }
  ASSERT_TRUE(fit.knows());
  EXPECT_LT(fit.error(), 0.05);
  for (int i = 0; i < 100; ++i) {
    const StepLoad load = random_load(rng);
    EXPECT_NEAR(fit.cost().seconds(load), kTruth.seconds(load), 0.05 * kTruth.seconds(load));
  }
  EXPECT_NEAR(fit.cost().base, kTruth.base, 0.1 * kTruth.base);
}

// A CPU's kernels take rows in tiles of 8: 9 rows cost much more than 8, 16 little more than 9.
TEST(StepCostFit, FindsTheStepWhereATileIsFull) {
  Rng rng(3);
  StepCostFit fit;
  const auto seconds = [](double rows) {
    return 0.0015 + 0.00035 * rows + (rows > 8 ? 0.0015 : 0) + (rows > 16 ? 0.002 : 0);
  };
  for (int i = 0; i < 3000; ++i) {
    const StepLoad load{.decodes = static_cast<double>(rng.between(1, 24))};
    fit.observe(load, seconds(load.decodes) * (0.97 + 0.06 * rng.uniform()));
  }
  for (const double rows : {1.0, 8.0, 9.0, 16.0, 17.0, 24.0}) {
    EXPECT_NEAR(fit.cost().seconds({.decodes = rows}), seconds(rows), 0.03 * seconds(rows)) << rows;
  }
}

// Steps scatter: the cost is their mean, not what the fast ones among them took.
TEST(StepCostFit, IsTheMeanOfStepsThatScatter) {
  Rng rng(5);
  StepCostFit fit;
  double sum = 0, predicted = 0;
  for (int i = 0; i < 8000; ++i) {
    const StepLoad load{.decodes = 1.0 + i % 8};
    const double seconds = (0.002 + 3e-4 * load.decodes) * (0.65 + 0.7 * rng.uniform());
    fit.observe(load, seconds);
    if (i < 4000) continue;
    sum += seconds;
    predicted += fit.cost().seconds(load);
  }
  EXPECT_NEAR(predicted / sum, 1, 0.015);
}

// Few rows cost what a CPU's kernels for few rows make of them: no line goes through these points.
TEST(StepCostFit, FollowsTheRowsOfSmallSteps) {
  const auto truth = [](double rows) {
    constexpr double kRows[] = {1, 8, 16, 32, 64, 512};
    constexpr double kSeconds[] = {2.2e-3, 4.4e-3, 10e-3, 18e-3, 29e-3, 170e-3};
    size_t i = 1;
    while (rows > kRows[i]) ++i;
    const double share = (rows - kRows[i - 1]) / (kRows[i] - kRows[i - 1]);
    return kSeconds[i - 1] + share * (kSeconds[i] - kSeconds[i - 1]);
  };
  Rng rng(3);
  StepCostFit fit;
  for (int i = 0; i < 6000; ++i) {
    StepLoad load{.decodes = static_cast<double>(rng.between(1, 32))};
    if (rng.below(8) == 0) load.prompt_tokens = static_cast<double>(rng.between(1, 480));
    fit.observe(load, truth(load.rows()) * (0.95 + 0.1 * rng.uniform()));
  }
  for (const double decodes : {1.0, 2.0, 4.0, 8.0, 12.0, 16.0, 24.0, 32.0}) {
    EXPECT_NEAR(fit.cost().seconds({.decodes = decodes}), truth(decodes), 0.12 * truth(decodes))
        << decodes;
  }
  const StepLoad mixed{.prompt_tokens = 200, .decodes = 10};
  EXPECT_NEAR(fit.cost().seconds(mixed), truth(210), 0.1 * truth(210));
}

// Steps of one kind only: terms that were never seen stay at zero, none is negative.
TEST(StepCostFit, SaysNothingOfWhatItHasNotSeen) {
  StepCostFit fit;
  for (int i = 0; i < 100; ++i) fit.observe({.decodes = 8, .kv_tokens = 800.0 + i}, 0.005);
  const StepCost& cost = fit.cost();
  EXPECT_EQ(cost.per_prompt_token, 0);
  EXPECT_EQ(cost.per_prompt_context, 0);
  EXPECT_GE(cost.base, 0);
  EXPECT_NEAR(cost.seconds({.decodes = 8, .kv_tokens = 850}), 0.005, 1e-5);
  fit.observe({.decodes = 8}, 0);  // the clock stood still
  EXPECT_EQ(fit.steps(), 100);
}

TEST(StepCostFit, OneStallIsNoCost) {
  StepCostFit fit;
  for (int i = 0; i < 200; ++i) {
    fit.observe({.decodes = 1.0 + i % 8}, i == 150 ? 5.0 : 0.004 + 1e-4 * (i % 8));
  }
  EXPECT_NEAR(fit.cost().seconds({.decodes = 4}), 0.0043, 0.0003);
}

TEST(StepOverrun, FollowsWhatAllButAShareStayBelow) {
  StepOverrun overrun(1.0, 0.1), strict(1.0, 0.02);
  Rng rng(5);
  for (int i = 0; i < 20000; ++i) {
    const double seconds = 0.9 + 0.5 * rng.uniform();
    overrun.note(seconds, 1.0);
    strict.note(seconds, 1.0);
  }
  EXPECT_NEAR(overrun.ratio(), 1.35, 0.03);
  EXPECT_NEAR(strict.ratio(), 1.39, 0.03);
  for (int i = 0; i < 2000; ++i) overrun.note(0.8, 1.0);
  EXPECT_EQ(overrun.ratio(), 1.0);
  overrun.note(5, 0);  // nothing was predicted
  EXPECT_EQ(overrun.ratio(), 1.0);
}

}  // namespace
}  // namespace headrace::step_cost_test
