#include "apps/step_trace.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

// A run: a prompt of its own kernel, then steps of 2 layers with a norm at the end.
std::vector<KernelRun> run_of(int steps) {
  std::vector<KernelRun> runs{{"prefill", 0, 900'000}};
  for (int step = 0; step < steps; ++step) {
    for (int layer = 0; layer < 2; ++layer) {
      runs.push_back({"attention", 0, 5'000});
      runs.push_back({"norm", 0, 1'000});
    }
    runs.push_back({"norm", 0, 1'000});
  }
  return runs;
}

TEST(StepTrace, IsOfTheStepsThatOneRunHasMore) {
  const StepTrace trace = trace_of_step(run_of(3), run_of(11), 8, 2);
  ASSERT_EQ(trace.families.size(), 2u);
  EXPECT_EQ(trace.families[0].name, "attention");
  EXPECT_NEAR(trace.families[0].launches, 2, 1e-9);
  EXPECT_NEAR(trace.families[0].microseconds, 10, 1e-9);
  EXPECT_NEAR(trace.families[1].launches, 3, 1e-9);
  EXPECT_NEAR(trace.launches, 5, 1e-9);
  EXPECT_EQ(trace.launches_per_layer, 2);  // attention and one norm; the other ends the step
  EXPECT_NEAR(trace.microseconds, 13, 1e-9);
}

}  // namespace
}  // namespace headrace
