#include "bench/edge_bench.h"

#include <gtest/gtest.h>

namespace headrace::edge_bench_test {
namespace {

// A client that is told of an event too few, or one without its token, never ends; one too many is
// an error of the run.
void expect_whole(const EdgeLoad& load) {
  const auto model = make_edge_model();
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto result = measure_edge(*model, load);
  ASSERT_TRUE(result.ok()) << result.status().message();
  const double tokens = static_cast<double>(load.streams) * load.steps;
  EXPECT_NEAR(result->tokens_per_second * result->seconds, tokens, 1e-3 * tokens);
  EXPECT_GT(result->delay_ms_p50, 0);
  EXPECT_GE(result->delay_ms_p99, result->delay_ms_p50);
  EXPECT_GE(result->delay_ms_max, result->delay_ms_p99);
  EXPECT_GE(result->burst_ms_max, result->burst_ms_p50);
  EXPECT_GE(result->burst_ms_p50, result->delay_ms_p50);
  EXPECT_GT(result->server_cpu_seconds, 0);
  EXPECT_GT(result->client_cpu_seconds, 0);
}

TEST(EdgeBench, EveryTokenOfEveryStreamIsRead) {
  for (const bool tls : {false, true}) {
    expect_whole({.streams = 8, .steps = 100, .tls = tls});
    expect_whole({.route = EdgeRoute::kCompletions, .streams = 8, .steps = 100, .tls = tls});
  }
}

TEST(EdgeBench, APaceIsKept) {
  const auto model = make_edge_model();
  ASSERT_TRUE(model.ok());
  const auto result = measure_edge(*model, {.streams = 4, .steps = 21, .steps_per_second = 100});
  ASSERT_TRUE(result.ok()) << result.status().message();
  EXPECT_GE(result->seconds, 0.2);  // 20 steps behind the first
  EXPECT_GT(result->resident_kib_per_stream, 0);
}

}  // namespace
}  // namespace headrace::edge_bench_test
