// What admission_headroom is worth, on traces in virtual time; deterministic.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>

#include "base/rng.h"
#include "sim/trace_replay.h"

namespace headrace::headroom_test {
namespace {

enum class Ends : uint8_t { kAtLimit, kEarlier };  // whether clients know how long answers get

// Requests that are all there at the start: log-normal answers, or all of one length.
std::vector<TraceRequest> crowd(int32_t count, double sigma, Ends ends) {
  Rng rng(7);
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < count; ++i) {
    double normal = -6;
    for (int k = 0; k < 12; ++k) normal += rng.uniform();
    TraceRequest request;
    request.output = std::clamp(static_cast<int32_t>(400 * std::exp(sigma * normal)), 4, 1024);
    request.max_tokens = ends == Ends::kAtLimit ? request.output : 1024;
    request.prompt = {{static_cast<uint64_t>(i) + 1, 32 + static_cast<int32_t>(rng.below(256))}};
    trace.push_back(request);
  }
  return trace;
}

SchedulerOptions options_of(int32_t kv_tokens, double headroom, int32_t block_tokens = 16) {
  SchedulerOptions options;
  options.max_num_seqs = 128;
  options.max_num_batched_tokens = 1024;
  options.max_model_len = 2048;
  options.max_queued_requests = 10000;
  options.groups = {{.block_tokens = block_tokens}};
  options.block_count = kv_tokens / block_tokens;
  options.admission_headroom = headroom;
  return options;
}

ReplayReport replay_of(const std::vector<TraceRequest>& trace, const char* machine,
                       const SchedulerOptions& options) {
  return replay(trace, options, find_machine(machine).value().cost).value();
}

double tokens_per_second(const ReplayReport& report) {
  return static_cast<double>(report.stats.generation_tokens) / report.seconds;
}

TEST(Headroom, LittleIsComputedAgainAndMoreIsDone) {
  struct Row {
    const char* machine;
    Ends ends;
    int32_t kv_tokens;
    double recomputed_max;  // of what it is without headroom
    double faster_min;
  };
  for (const Row& row : {Row{"h200-8b", Ends::kAtLimit, 20000, 0.35, 1.02},
                         Row{"h200-8b", Ends::kEarlier, 20000, 0.6, 0.96},
                         Row{"cpu-135m", Ends::kAtLimit, 6000, 0.15, 1.05},
                         Row{"cpu-135m", Ends::kEarlier, 6000, 0.6, 1.02}}) {
    const auto trace = crowd(300, 0.8, row.ends);
    const ReplayReport without = replay_of(trace, row.machine, options_of(row.kv_tokens, 0));
    const ReplayReport with = replay_of(trace, row.machine, options_of(row.kv_tokens, 1.5));
    const auto again = static_cast<double>(with.stats.recomputed_tokens);
    const auto again_without = static_cast<double>(without.stats.recomputed_tokens);
    std::printf("%s, %s: computed again %.0f -> %.0f, tok/s %.0f -> %.0f\n", row.machine,
                row.ends == Ends::kAtLimit ? "known lengths" : "unknown lengths", again_without,
                again, tokens_per_second(without), tokens_per_second(with));
    EXPECT_GT(again_without, 1000);
    EXPECT_LE(again, row.recomputed_max * again_without);
    EXPECT_GE(tokens_per_second(with), row.faster_min * tokens_per_second(without));
  }
}

// Answers of one length that came together: all need most at the same time, and nobody's pages come
// back before. On a GPU idle memory would cost more than computing again.
TEST(Headroom, AnswersOfOneLengthLoseNothing) {
  for (const char* machine : {"h200-8b", "cpu-135m"}) {
    const auto trace = crowd(100, 0, Ends::kAtLimit);
    const ReplayReport without = replay_of(trace, machine, options_of(20000, 0));
    const ReplayReport with = replay_of(trace, machine, options_of(20000, 1.5));
    std::printf("%s, one length: tok/s %.0f -> %.0f\n", machine, tokens_per_second(without),
                tokens_per_second(with));
    EXPECT_GE(tokens_per_second(with), 0.98 * tokens_per_second(without));
  }
}

TEST(Headroom, AmpleMemoryIsUsedAsBefore) {
  const auto trace = crowd(300, 0.8, Ends::kEarlier);
  const ReplayReport without = replay_of(trace, "h200-8b", options_of(800000, 0));
  const ReplayReport with = replay_of(trace, "h200-8b", options_of(800000, 1.5));
  EXPECT_EQ(with.seconds, without.seconds);
  EXPECT_EQ(with.stats.steps, without.stats.steps);
}

// Where a step costs nothing but its rows, nobody joins to be preempted. (The time that prompts
// take is not in what is expected of them.)
TEST(Headroom, KnownLengthsNeedNextToNoPreemption) {
  const StepCost rows{.per_prompt_token = 1e-4, .per_decode = 1e-4};
  for (int32_t kv_tokens : {3000, 5000, 9000}) {
    const auto trace = crowd(150, 0.8, Ends::kAtLimit);
    SchedulerOptions options = options_of(kv_tokens, 1.5, /*block_tokens=*/1);
    const ReplayReport with = replay(trace, options, rows).value();
    options.admission_headroom = 0;
    const ReplayReport without = replay(trace, options, rows).value();
    std::printf("known lengths, %d tokens of memory: preempted %lu -> %lu\n", kv_tokens,
                without.stats.preemptions, with.stats.preemptions);
    EXPECT_LE(20 * with.stats.preemptions, without.stats.preemptions);
    EXPECT_GT(without.stats.preemptions, 50u);
  }
}

}  // namespace
}  // namespace headrace::headroom_test
