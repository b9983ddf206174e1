#include "bench/step_trace.h"

#include <gtest/gtest.h>

namespace headrace::step_trace_test {
namespace {

// A run of 2 layers: two steps with a prompt, then decodes with a norm at the end.
std::vector<KernelRun> run_of(int steps) {
  std::vector<KernelRun> runs;
  int64_t now = 0;
  const auto add = [&](const char* name, int64_t ns) {
    runs.push_back({name, now, now + ns});
    now += ns + 1'000;
  };
  for (int step = 0; step < steps; ++step) {
    add("embed", 500);
    for (int layer = 0; layer < 2; ++layer) {
      add(step < 2 ? "prefill" : "decode", step < 2 ? 90'000 : 5'000);
      add("norm", 1'000);
    }
    add("norm", 1'000);
  }
  return runs;
}

TEST(StepTrace, IsOfTheStepsInTheMiddle) {
  const StepTrace trace = trace_of_step(run_of(30), 30, 2).value();
  ASSERT_EQ(trace.families.size(), 3u);
  EXPECT_EQ(trace.families[0].name, "decode");
  EXPECT_NEAR(trace.families[0].launches, 2, 1e-9);
  EXPECT_NEAR(trace.families[0].microseconds, 10, 1e-9);
  EXPECT_NEAR(trace.families[1].launches, 3, 1e-9);
  EXPECT_NEAR(trace.launches, 6, 1e-9);
  EXPECT_EQ(trace.launches_per_layer, 2);  // attention and one norm; the others are the step's
  EXPECT_NEAR(trace.microseconds, 13.5, 1e-9);
  EXPECT_NEAR(trace.period, 19.5, 1e-9);
}

TEST(StepTrace, ATraceOfSomethingElseIsRefused) {
  EXPECT_FALSE(trace_of_step(run_of(30), 60, 2).ok());
}

}  // namespace
}  // namespace headrace::step_trace_test
