// Background requests: what live ones leave is theirs, and nothing else.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <memory>

#include "sched/queue_policy.h"
#include "sim/trace_replay.h"

namespace headrace::background_test {
namespace {

constexpr double kStepSeconds = 0.006;

SchedulerOptions options_of(const std::string& policy) {
  SchedulerOptions options;
  options.policy = policy;
  options.max_num_seqs = 256;
  options.max_num_batched_tokens = 2048;
  options.max_model_len = 4096;
  options.max_queued_requests = 100000;
  options.groups = {{.block_tokens = 16}};
  options.block_count = 50000;
  options.background.step_seconds = kStepSeconds;
  return options;
}

ReplayReport run(const std::vector<TraceRequest>& trace, const std::string& policy) {
  return replay(trace, options_of(policy), find_machine("h200-8b").value().cost).value();
}

double live_ttft_p99(const ReplayReport& report) {
  std::vector<double> values;
  for (const auto& row : report.rows) {
    if (!row.background) values.push_back(row.ttft);
  }
  return percentile_of(values, 0.99);
}

struct Mix {
  std::vector<TraceRequest> both, live;
};
Mix mix(double rate, int32_t requests) {
  Mix result;
  result.both = make_trace({.kind = "batch-beside", .requests = requests, .rate = rate}).value();
  std::copy_if(result.both.begin(), result.both.end(), std::back_inserter(result.live),
               [](const TraceRequest& each) { return !each.background; });
  return result;
}

TEST(Background, DelaysLiveRequestsByAShortStepAtMost) {
  const Mix traces = mix(8, 2000);
  const ReplayReport alone = run(traces.live, "fcfs"), beside = run(traces.both, "fcfs");
  std::printf("live TTFT p99: alone %.1f ms, beside a batch %.1f ms; longest step beside %.2f ms\n",
              1e3 * live_ttft_p99(alone), 1e3 * live_ttft_p99(beside),
              1e3 * beside.beside_seconds_max);
  EXPECT_LE(live_ttft_p99(beside),
            std::max(1.1 * live_ttft_p99(alone), live_ttft_p99(alone) + kStepSeconds));
  EXPECT_LT(beside.beside_seconds_max, 1.05 * kStepSeconds);
  EXPECT_GT(beside.background_tokens, 0);
}

// What operators are told is what the replay saw.
TEST(Background, ItsStepsAndTokensAreCounted) {
  const Mix traces = mix(8, 1000);
  const ReplayReport report = run(traces.both, "fcfs");
  const SchedulerStats& stats = report.stats;
  EXPECT_EQ(static_cast<int64_t>(stats.background_tokens), report.background_tokens);
  EXPECT_GT(stats.beside_steps, 0U);
  EXPECT_LE(stats.beside_steps_over, stats.beside_steps);
  EXPECT_NEAR(stats.beside_seconds_max, report.beside_seconds_max, 1e-6);
  EXPECT_LE(stats.beside_seconds / static_cast<double>(stats.beside_steps),
            stats.beside_seconds_max);
  EXPECT_EQ(run(traces.live, "fcfs").stats.background_tokens, 0U);
}

// Of what steps with live work leave under the bound.
TEST(Background, FillsTheRoomThatItHas) {
  const Mix traces = mix(16, 2000);
  const SchedulerStats stats = run(traces.both, "fcfs").stats;
  std::printf("a batch used %.2f of %.2f s of room\n", stats.background_used_seconds,
              stats.background_room_seconds);
  EXPECT_GT(stats.background_room_seconds, 1);
  EXPECT_GE(stats.background_used_seconds, 0.9 * stats.background_room_seconds);
}

TEST(Background, EveryRequestEndsUnderEveryPolicy) {
  const Mix traces = mix(20, 200);
  for (const std::string& policy : queue_policy_names()) {
    const ReplayReport report = run(traces.both, policy);
    int64_t tokens = 0;
    for (const TraceRequest& request : traces.both) tokens += request.output;
    EXPECT_EQ(static_cast<int64_t>(report.stats.generation_tokens), tokens) << policy;
  }
}

// A scheduler driven step by step, each of which takes what the model says.
class Machine {
 public:
  explicit Machine(SchedulerOptions options) {
    options.clock = &clock_;
    scheduler_ = Scheduler::create(options).value();
  }

  Scheduler& scheduler() { return *scheduler_; }
  void add(uint64_t id, bool background, int32_t prompt = 8, int32_t output = 100) {
    Request request{
        .id = RequestId(id),
        .prompt = std::vector<TokenId>(static_cast<size_t>(prompt), static_cast<TokenId>(id))};
    request.sampling.max_tokens = output;
    request.sampling.ignore_eos = true;
    request.background = background;
    ASSERT_TRUE(scheduler_->add(std::move(request)).ok());
  }
  StepPlan step() {
    StepPlan plan = scheduler_->plan();
    seconds_ = cost_.seconds(StepLoad::of(plan));
    clock_.advance_ns(static_cast<int64_t>(1e9 * seconds_));
    StepResult result;
    for (const Work& work : plan.work) {
      if (work.samples) result.rows.push_back({.sequence = work.sequence, .accepted = {7}});
    }
    scheduler_->apply(plan, result);
    return plan;
  }
  double seconds() const { return seconds_; }  // of the last step
  double now() const { return clock_.now_seconds(); }
  void live_request_comes_and_goes(uint64_t id) {
    add(id, false, 8, 1);
    while (scheduler_->stats().running > scheduler_->stats().background_running ||
           scheduler_->stats().waiting > 0) {
      step();
    }
  }

 private:
  const StepCost cost_{.base = 0.003, .per_prompt_token = 0.0005, .per_decode = 0.0005};
  VirtualClock clock_;
  std::unique_ptr<Scheduler> scheduler_;
  double seconds_ = 0;
};

// All slots are taken by a batch: who comes live has one at once.
TEST(Background, GivesWayWithinAStep) {
  SchedulerOptions options = options_of("fcfs");
  options.max_num_seqs = 4;
  Machine machine(options);
  for (uint64_t id = 1; id <= 6; ++id) machine.add(id, true);
  for (int i = 0; i < 5; ++i) machine.step();
  EXPECT_EQ(machine.scheduler().stats().background_running, 4);
  machine.add(7, false);
  const StepPlan plan = machine.step();
  EXPECT_TRUE(std::any_of(plan.admitted.begin(), plan.admitted.end(), [](const Admission& each) {
    return each.request->id == RequestId(7);
  })) << plan.to_string();
  EXPECT_EQ(machine.scheduler().stats().background_running, 3);
}

// Who comes next waits for the rest of a step: of a short one, as long as live requests come.
TEST(Background, StepsBetweenLiveRequestsAreShort) {
  SchedulerOptions options = options_of("fcfs");
  options.background.gap_seconds = 0.02;
  Machine machine(options);
  uint64_t id = 0;
  for (int i = 0; i < 40; ++i) machine.add(++id, true, 256, 400);
  machine.step();
  EXPECT_GT(machine.seconds(), 1);  // no live request was ever there
  for (int i = 0; i < 30; ++i) machine.step();
  machine.live_request_comes_and_goes(++id);
  const double gone = machine.now();
  for (int i = 0; i < 40; ++i) machine.add(++id, true, 256, 400);
  double longest = 0, tokens = 0;
  while (machine.now() < gone + 4.9) {
    tokens += machine.step().token_count;
    longest = std::max(longest, machine.seconds());
  }
  EXPECT_LT(longest, 1.05 * 0.02);
  EXPECT_GT(tokens, 0.9 * 4.9 * (0.02 - 0.003) / 0.02 / 0.0005);  // and no step is wasted
  while (machine.now() < gone + 6) machine.step();
  for (int i = 0; i < 40; ++i) machine.add(++id, true, 256, 400);
  longest = 0;
  for (int i = 0; i < 10; ++i) machine.step(), longest = std::max(longest, machine.seconds());
  EXPECT_GT(longest, 0.5);
}

// A bound that no step keeps stops nobody: each takes twice the shortest step.
TEST(Background, GoesOnUnderAnyBoundOfStepsBetweenLiveRequests) {
  SchedulerOptions options = options_of("fcfs");
  options.background.gap_seconds = 1e-6;
  Machine machine(options);
  // Of every size, so that the cost of steps is known.
  for (uint64_t id = 1; id <= 20; ++id) machine.add(id, true, 16, static_cast<int32_t>(2 * id));
  while (machine.scheduler().has_work()) machine.step();
  machine.live_request_comes_and_goes(21);
  const double gone = machine.now();
  for (uint64_t id = 22; id <= 30; ++id) machine.add(id, true, 300, 4);
  while (machine.now() < gone + 4.9 && machine.scheduler().has_work()) {
    EXPECT_GT(machine.step().token_count, 0);
    EXPECT_LE(machine.seconds(), 2.05 * 0.0035);
  }
  EXPECT_FALSE(machine.scheduler().has_work());
}

}  // namespace
}  // namespace headrace::background_test
