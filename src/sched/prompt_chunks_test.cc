// What prompts do to the answers beside them, in virtual time on the model of an H200.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>

#include "sim/trace_replay.h"

namespace headrace::prompt_chunks_test {
namespace {

constexpr int32_t kLongest = 32768;

// 32 answers of 4,096 tokens, a prompt of nearly 32k tokens every four seconds, or one of the two.
struct Who {
  bool answers = true, prompts = true;
};
ReplayReport run(double target, double over_share, Who who = {}, double step_max = 0) {
  std::vector<TraceRequest> trace =
      make_trace({.kind = "long-prompts", .requests = 40, .rate = 0.25, .max_model_len = kLongest})
          .value();
  std::erase_if(trace, [&](const TraceRequest& each) {
    return each.tenant == "prompts" ? !who.prompts : !who.answers;
  });
  const MachineRow machine = find_machine("h200-8b").value();
  SchedulerOptions options;
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 4096;
  options.max_model_len = kLongest;
  options.max_queued_requests = 100;
  options.groups = {{.block_tokens = 16}};
  options.block_count = machine.kv_tokens / 16;
  options.tpot_target_seconds = target;
  options.tpot_over_share = over_share;
  options.step_seconds_max = step_max;
  return replay(trace, options, machine.cost).value();
}

double slowest_prompt(const ReplayReport& report) {
  double slowest = 0;
  for (const auto& row : report.rows) {
    if (row.tenant == "prompts") slowest = std::max(slowest, row.ttft);
  }
  return slowest;
}
double gap(const ReplayReport& report, double share) {
  return report.token_gaps.at("decoders").percentile(share);
}

TEST(PromptChunks, AnswersAndALongPromptBothKeepTheirTime) {
  const double alone = slowest_prompt(run(0, 0, {.answers = false}));
  const double undisturbed = gap(run(0, 0, {.prompts = false}), 0.5);
  const ReplayReport report = run(0.0102, 0.0095);
  std::printf(
      "between tokens: undisturbed p50 %.2f ms, p99 %.2f, p99.9 %.2f; a prompt: alone "
      "%.2f s, at most %.2f\n",
      1e3 * undisturbed, 1e3 * gap(report, 0.99), 1e3 * gap(report, 0.999), alone,
      slowest_prompt(report));
  EXPECT_LE(gap(report, 0.99), 1.5 * undisturbed);
  EXPECT_LE(slowest_prompt(report), 2 * alone);
}

TEST(PromptChunks, AStepIsAsLongAsItsTarget) {
  const ReplayReport report = run(0.012, 0);
  EXPECT_NEAR(gap(report, 0.99), 0.012, 0.0003);
  EXPECT_LE(gap(report, 0.999), 0.0125) << "of the rest, steps before anything was known";
}

// Exact fill alone pauses the answers for as long as a step of 4,096 tokens takes behind 28,000
// others.
TEST(PromptChunks, ThePauseOfFullStepsIsBounded) {
  const double alone = slowest_prompt(run(0, 0, {.answers = false}));
  const ReplayReport fill = run(0, 0), bounded = run(0, 0, {}, 0.060);
  for (const ReplayReport* each : {&fill, &bounded}) {
    std::printf(
        "between tokens p99 %.1f ms, p99.9 %.1f, longest %.1f; a prompt at most %.2f s, "
        "alone %.2f\n",
        1e3 * gap(*each, 0.99), 1e3 * gap(*each, 0.999), 1e3 * gap(*each, 1), slowest_prompt(*each),
        alone);
  }
  EXPECT_GT(gap(fill, 0.999), 0.150);
  EXPECT_LE(gap(bounded, 0.999), 0.062);
  EXPECT_LE(slowest_prompt(bounded), 2 * alone);
}

}  // namespace
}  // namespace headrace::prompt_chunks_test
