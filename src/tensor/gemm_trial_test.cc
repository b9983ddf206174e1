#include "tensor/gemm_trial.h"

#include <gtest/gtest.h>

namespace headrace::gemm_trial_test {
namespace {

// Runs candidates in the order that the trial asks for until it is complete.
int runs_until_complete(GemmTrial& trial, const std::vector<double>& seconds) {
  int runs = 0;
  for (; !trial.complete(); ++runs) {
    const int candidate = trial.next();
    trial.start(candidate);
    // The first run of a kernel loads it.
    const double load = runs < static_cast<int>(seconds.size()) ? 5e-3 : 0;
    trial.add(candidate, seconds[static_cast<size_t>(candidate)] + load);
  }
  return runs;
}

TEST(GemmTrial, TakesTheFastestAndAsksForEachAsOften) {
  GemmTrial trial(3);
  EXPECT_EQ(runs_until_complete(trial, {60e-6, 57e-6, 64e-6}), 3 * GemmTrial::kSamples);
  EXPECT_EQ(trial.best(), 1);
  EXPECT_DOUBLE_EQ(trial.seconds(1), 57e-6);  // without the load
}

TEST(GemmTrial, KeepsTheFirstWhereTheGainIsNoise) {
  GemmTrial trial(2);
  runs_until_complete(trial, {60e-6, 59.7e-6});
  EXPECT_EQ(trial.best(), 0);
}

TEST(GemmTrial, StartsTheNextWhileTimingsAreStillToCome) {
  GemmTrial trial(2);
  EXPECT_EQ(trial.next(), 0);
  trial.start(0);
  EXPECT_EQ(trial.next(), 1);
  trial.start(1);
  EXPECT_EQ(trial.next(), 0);
  EXPECT_FALSE(trial.complete());
}

TEST(GemmTrial, OneCandidateIsTheBest) {
  GemmTrial trial(1);
  runs_until_complete(trial, {1e-6});
  EXPECT_EQ(trial.best(), 0);
}

}  // namespace
}  // namespace headrace::gemm_trial_test
