// What each policy is for, on traces in virtual time and on the oracle device.
#include <gtest/gtest.h>

#include <algorithm>
#include <cstdio>
#include <numeric>
#include <utility>

#include "sched/queue_policy.h"
#include "sim/trace_replay.h"

namespace headrace::policies_test {
namespace {

SchedulerOptions replay_options(const std::string& policy) {
  SchedulerOptions options;
  options.policy = policy;
  options.max_num_seqs = 64;
  options.max_num_batched_tokens = 2048;
  options.max_model_len = 4096;
  options.max_queued_requests = 100000;
  options.groups = {{.block_tokens = 16}};
  options.block_count = 50000;
  return options;
}

// Requests a second with which a trace keeps the machine busy, near enough.
std::vector<TraceRequest> trace_of(const std::string& kind, double rate, int32_t requests = 2000) {
  return make_trace({.kind = kind, .requests = requests, .rate = rate}).value();
}

ReplayReport run(const std::vector<TraceRequest>& trace, const SchedulerOptions& options) {
  return replay(trace, options, find_machine("h200-8b").value().cost).value();
}

std::vector<double> values(const ReplayReport& report, double ReplayReport::Row::*field,
                           const std::string& tenant = "") {
  std::vector<double> result;
  for (const auto& row : report.rows) {
    if (tenant.empty() || row.tenant == tenant) result.push_back(row.*field);
  }
  return result;
}
double mean(const std::vector<double>& list) {
  return std::accumulate(list.begin(), list.end(), 0.0) / static_cast<double>(list.size());
}
double ttft_p99(const ReplayReport& report, const std::string& tenant = "") {
  return percentile_of(values(report, &ReplayReport::Row::ttft, tenant), 0.99);
}

TEST(Policies, EveryPolicyEndsEveryRequestAndReplaysExactly) {
  const auto trace = trace_of("sharegpt", 50, 300);
  for (const std::string& policy : queue_policy_names()) {
    const ReplayReport first = run(trace, replay_options(policy));
    const ReplayReport second = run(trace, replay_options(policy));
    int64_t tokens = 0;
    for (const TraceRequest& request : trace) tokens += request.output;
    EXPECT_EQ(static_cast<int64_t>(first.stats.generation_tokens), tokens) << policy;
    EXPECT_EQ(first.seconds, second.seconds) << policy;
    EXPECT_EQ(first.steps, second.steps) << policy;
  }
}

TEST(Policies, TheUnknownIsRefusedWithTheChoices) {
  const Status status = Scheduler::create(replay_options("random")).status();
  EXPECT_EQ(status.field(), "policy");
  EXPECT_NE(status.message().find("sjf-predicted"), std::string::npos);
}

TEST(Policies, MlfqLetsShortAnswersPass) {
  const auto trace = trace_of("heavy-tail", 52);
  const ReplayReport fcfs = run(trace, replay_options("fcfs"));
  const ReplayReport mlfq = run(trace, replay_options("mlfq"));
  EXPECT_LT(ttft_p99(mlfq) * 5, ttft_p99(fcfs));
  EXPECT_LT(mean(values(mlfq, &ReplayReport::Row::completion)),
            mean(values(fcfs, &ReplayReport::Row::completion)));
  EXPECT_LT(mlfq.seconds, fcfs.seconds * 1.03) << "throughput";
  EXPECT_GT(mlfq.stats.yields, 0u);
}

TEST(Policies, FairKeepsATenantBesideAFloodAsIfAlone) {
  // Requests a second: 1.2 x what the machine ends.
  for (const auto& [kind, rate] : {std::pair("flood", 138.0), std::pair("flood-chat", 27.6)}) {
    const auto trace = trace_of(kind, rate, 4000);
    std::vector<TraceRequest> calm;
    for (const TraceRequest& request : trace) {
      if (request.tenant == "calm") calm.push_back(request);
    }
    ASSERT_GT(calm.size(), 20u);
    const double alone = ttft_p99(run(calm, replay_options("fcfs")));
    const ReplayReport fcfs = run(trace, replay_options("fcfs"));
    const ReplayReport fair = run(trace, replay_options("fair"));
    std::printf("%s, the calm tenant's TTFT p99: alone %.4f s, fcfs %.4f s, fair %.4f s\n", kind,
                alone, ttft_p99(fcfs, "calm"), ttft_p99(fair, "calm"));
    EXPECT_LT(ttft_p99(fair, "calm"), 1.3 * alone);
    EXPECT_LT(fair.seconds, fcfs.seconds * 1.01) << "throughput";
  }
}

// Without a price on preemption this was three times longer than fcfs, and 7 % slower.
TEST(Policies, MlfqIsNearTheClairvoyantOrderWhereMemoryIsShort) {
  auto trace = trace_of("heavy-tail", 22.6, 6000);  // load 0.9
  const auto mean_end = [&](const std::string& policy) {
    SchedulerOptions options = replay_options(policy);
    options.block_count = 16384 / 16;
    const ReplayReport report = run(trace, options);
    std::printf("%s: mean end %.3f s, TTFT p99 %.3f s\n", policy.c_str(),
                mean(values(report, &ReplayReport::Row::completion)), ttft_p99(report));
    return std::pair(mean(values(report, &ReplayReport::Row::completion)), ttft_p99(report));
  };
  const auto fcfs = mean_end("fcfs"), mlfq = mean_end("mlfq");
  for (TraceRequest& request : trace) request.max_tokens = request.output;
  const auto oracle = mean_end("srpt-declared");
  EXPECT_LT(mlfq.first, fcfs.first);
  EXPECT_LT(mlfq.first, 1.25 * oracle.first);
  EXPECT_LT(5 * mlfq.second, fcfs.second);
}

// Taking turns only delays answers of one length: mlfq learns it, and nobody gives way.
TEST(Policies, MlfqIsALineWhereAllAnswersAreAlike) {
  std::vector<TraceRequest> trace = trace_of("heavy-tail", 28);
  for (TraceRequest& request : trace) request.output = 400;
  const auto run_with = [&](const std::string& policy) {
    SchedulerOptions options = replay_options(policy);
    options.block_count = 3125;
    return run(trace, options);
  };
  const ReplayReport fcfs = run_with("fcfs"), mlfq = run_with("mlfq");
  const double line = mean(values(fcfs, &ReplayReport::Row::completion));
  const double turns = mean(values(mlfq, &ReplayReport::Row::completion));
  std::printf("answers alike: mean end fcfs %.2f s, mlfq %.2f s; all of it %.1f and %.1f s\n", line,
              turns, fcfs.seconds, mlfq.seconds);
  EXPECT_GT(line, 2) << "no queue: nothing is shown";
  EXPECT_LT(mlfq.seconds, 1.01 * fcfs.seconds);
  EXPECT_LT(turns, 1.02 * line);
}

TEST(Policies, MlfqIsNoSlowerThanALineOnOrdinaryTraffic) {
  for (const std::string kind : {"conversation", "summarisation", "sharegpt"}) {
    SchedulerOptions options = replay_options("fcfs");
    const StepCost cost = find_machine("h200-8b").value().cost;
    const double full = saturated_rate(trace_of(kind, 1), options, cost).value();
    for (const double load : {0.7, 0.95, 1.05}) {
      const auto trace = trace_of(kind, load * full);
      options.policy = "fcfs";
      const double line = mean(values(run(trace, options), &ReplayReport::Row::completion));
      options.policy = "mlfq";
      const double turns = mean(values(run(trace, options), &ReplayReport::Row::completion));
      std::printf("%s at load %.2f: mean end fcfs %.2f s, mlfq %.2f s\n", kind.c_str(), load, line,
                  turns);
      EXPECT_LT(turns, 1.02 * line) << kind << " at load " << load;
    }
  }
}

TEST(Policies, SjfPredictedPutsShortAnswersFirstWhereTheyCanBeTold) {
  const auto completion = [](const std::string& kind, const std::string& policy) {
    const auto trace = trace_of(kind, 30, 3000);
    return mean(values(run(trace, replay_options(policy)), &ReplayReport::Row::completion));
  };
  const double told = completion("learnable", "sjf-predicted") / completion("learnable", "fcfs");
  const double random = completion("random", "sjf-predicted") / completion("random", "fcfs");
  std::printf("mean completion, sjf-predicted over fcfs: learnable %.2f, random %.2f\n", told,
              random);
  auto declared = trace_of("learnable", 30, 3000);
  for (TraceRequest& request : declared) request.max_tokens = request.output;
  const double oracle =
      mean(values(run(declared, replay_options("sjf-declared")), &ReplayReport::Row::completion));
  EXPECT_LT(completion("learnable", "sjf-predicted"), 1.15 * oracle);
  EXPECT_LT(told, 0.9);
  EXPECT_LT(random, 1.05);
}

// 1,000 answers of very different length, all there at once: the last one ends sooner.
TEST(Policies, LjfDeclaredEndsAJobSooner) {
  auto trace = trace_of("heavy-tail", 1e6, 1000);
  for (TraceRequest& request : trace) request.max_tokens = request.output;
  const double fcfs = run(trace, replay_options("fcfs")).seconds;
  const double longest_first = run(trace, replay_options("ljf-declared")).seconds;
  std::printf("end of a job, ljf-declared over fcfs: %.3f\n", longest_first / fcfs);
  EXPECT_LT(longest_first, 0.95 * fcfs);
}

TEST(Policies, PackedPredictedFitsMoreThanTheWorstCase) {
  const auto trace =
      make_trace({.kind = "learnable", .requests = 3000, .rate = 40, .max_model_len = 8192})
          .value();
  const auto with = [&](const std::string& policy) {
    SchedulerOptions options = replay_options(policy);
    options.max_num_seqs = 256;
    options.max_model_len = 8192;
    options.block_count = 120000 / 16;
    return run(trace, options);
  };
  const ReplayReport worst = with("openppl"), packed = with("packed-predicted");
  const auto overruns =
      static_cast<double>(packed.stats.yields) / static_cast<double>(trace.size());
  std::printf("batch: worst case %.1f, packed %.1f; %.1f %% of the requests preempted\n",
              worst.running_mean, packed.running_mean, 100 * overruns);
  EXPECT_EQ(worst.stats.preemptions, 0u);
  EXPECT_GT(packed.running_mean, 2 * worst.running_mean);
  EXPECT_LT(overruns, 0.02);
  EXPECT_LT(packed.seconds, worst.seconds);
}

// Forty prompts that would all fit into a step: eight join each.
TEST(Policies, OpenPplLetsSoManyJoinAStep) {
  std::vector<TraceRequest> trace;
  for (uint64_t i = 0; i < 40; ++i) {
    trace.push_back({.prompt = {{i, 16}}, .output = 50, .max_tokens = 50});
  }
  const ReplayReport report = replay(trace, replay_options("openppl"), {.base = 0.010}).value();
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_NEAR(report.rows[i].ttft, 0.010 * static_cast<double>(i / 8 + 1), 1e-6) << i;
  }
}

// A step of 2,048 tokens holds two prompts of 1,000; of the third no part. One of 3,000 fits no
// step: it is cut.
TEST(Policies, OpenPplCutsNoPromptThatFitsAStep) {
  std::vector<TraceRequest> trace;
  for (const int32_t tokens : {1000, 1000, 1000, 3000}) {
    trace.push_back({.prompt = {{trace.size(), tokens}}, .output = 50, .max_tokens = 50});
  }
  const ReplayReport report = replay(trace, replay_options("openppl"), {.base = 0.010}).value();
  EXPECT_NEAR(report.rows[1].ttft, 0.010, 1e-6);
  EXPECT_NEAR(report.rows[2].ttft, 0.020, 1e-6);
  EXPECT_NEAR(report.rows[3].ttft, 0.030, 1e-6);  // 1,046 with the third, and the rest
}

// Memory for 20 answers of 320 tokens, which end one after the other from the 20th on: the next
// finds no pages, and joins after two have ended, a tenth of what runs.
TEST(Policies, OpenPplHoldsAdmissionAfterARequestFoundNoPages) {
  std::vector<TraceRequest> trace;
  for (int32_t i = 0; i < 24; ++i) {
    const int32_t output = i < 20 ? 257 + i : 305;
    trace.push_back(
        {.prompt = {{static_cast<uint64_t>(i), 16}}, .output = output, .max_tokens = 305});
  }
  SchedulerOptions options = replay_options("openppl");
  options.block_count = 20 * 20;
  options.openppl.joining_max = 64;
  options.enable_prefix_caching = false;
  const ReplayReport held = replay(trace, options, {.base = 0.010}).value();
  // The first ends after step 257 and the second after 258: two join in the next.
  EXPECT_NEAR(held.rows[20].ttft, 2.590, 1e-6);
  EXPECT_NEAR(held.rows[21].ttft, 2.590, 1e-6);
  EXPECT_NEAR(held.rows[22].ttft, 2.610, 1e-6);
  options.openppl.cooldown_max = 0;
  const ReplayReport open = replay(trace, options, {.base = 0.010}).value();
  EXPECT_NEAR(open.rows[20].ttft, 2.580, 1e-6);
  EXPECT_NEAR(open.rows[21].ttft, 2.590, 1e-6);
  EXPECT_EQ(held.stats.preemptions, 0U);
}

TEST(Policies, LpmUsesAPrefixWhileItIsThere) {
  const auto trace = trace_of("agentic", 80);
  const auto hit_rate = [&](const std::string& policy) {
    SchedulerOptions options = replay_options(policy);
    options.block_count = 60000 / 16;  // too little for all forty agents
    const SchedulerStats stats = run(trace, options).stats;
    return static_cast<double>(stats.prefix_cache_hits) /
           static_cast<double>(stats.prefix_cache_queries);
  };
  const double fcfs = hit_rate("fcfs"), lpm = hit_rate("lpm");
  std::printf("tokens found: fcfs %.1f %%, lpm %.1f %%\n", 100 * fcfs, 100 * lpm);
  EXPECT_GT(lpm, fcfs);
}

TEST(Policies, PriorityServesTheBetterClassFirst) {
  auto trace = trace_of("sharegpt", 80);
  for (size_t i = 0; i < trace.size(); ++i) {
    trace[i].priority = i % 10 == 0 ? -1 : 0;
    trace[i].tenant = i % 10 == 0 ? "first" : "second";
  }
  const ReplayReport report = run(trace, replay_options("priority"));
  EXPECT_LT(ttft_p99(report, "first") * 10, ttft_p99(report, "second"));
}

TEST(Policies, DeadlineLetsTheLateWait) {
  const auto trace = trace_of("sharegpt", 60);
  SchedulerOptions options = replay_options("deadline");
  options.slo_classes = {{"chat", 0.5, 0.03}};
  const auto in_time = [](const ReplayReport& report) {
    const auto ttft = values(report, &ReplayReport::Row::ttft);
    return std::count_if(ttft.begin(), ttft.end(), [](double t) { return t <= 0.5; });
  };
  const auto deadline = in_time(run(trace, options));
  const auto fcfs = in_time(run(trace, replay_options("fcfs")));
  std::printf("first tokens in time: fcfs %ld, deadline %ld of 2000\n", fcfs, deadline);
  EXPECT_GT(static_cast<double>(deadline), 1.3 * static_cast<double>(fcfs));
}

// One that runs and one that waits are 1 >= floor(1.2 x 1).
TEST(Policies, WaitingRatioLetsALoneRequestInAtOnce) {
  const auto trace = trace_of("sharegpt", 1, 500);
  const auto p50 = [&](const std::string& policy) {
    return percentile_of(values(run(trace, replay_options(policy)), &ReplayReport::Row::ttft), 0.5);
  };
  const double fcfs = p50("fcfs"), tgi = p50("waiting-ratio");
  std::printf("a request a second, TTFT p50: fcfs %.1f ms, waiting-ratio %.1f ms\n", 1e3 * fcfs,
              1e3 * tgi);
  EXPECT_LT(tgi, 1.1 * fcfs);
}

// Forty run. The first newcomer comes when twenty steps have passed since the last prefill, though
// nobody waited in them; the second five steps after the first, and has fifteen before it.
TEST(Policies, WaitingRatioCountsStepsSinceTheLastPrefill) {
  const StepCost cost{.base = 0.010};
  std::vector<TraceRequest> trace;
  const auto add = [&](double arrival) {
    trace.push_back({.arrival_seconds = arrival,
                     .prompt = {{trace.size(), 16}},
                     .output = 400,
                     .max_tokens = 400});
  };
  for (int i = 0; i < 40; ++i) add(0);
  add(0.999);
  add(1.049);
  const ReplayReport report = replay(trace, replay_options("waiting-ratio"), cost).value();
  EXPECT_NEAR(report.rows[40].ttft, 0.011, 1e-6);  // the rest of a step, and the prefill
  // Its step, the fourth decode after the prefill, ends at 1.05; sixteen follow, and its prefill.
  EXPECT_NEAR(report.rows[41].ttft, 0.001 + 0.160 + 0.010, 1e-6);
}

// Of four hundred requests that are there from the start 64 have slots; when one ends the next has
// its prefill, and then all decode: no stream waits for two prefills.
TEST(Policies, WaitingRatioDecodesAfterEachPrefill) {
  const StepCost cost{.base = 0.010};
  std::vector<TraceRequest> trace;
  for (int i = 0; i < 400; ++i) {
    trace.push_back({.prompt = {{static_cast<uint64_t>(i), 16}},
                     .output = 2 + i % 50,
                     .max_tokens = 2 + i % 50});
  }
  SchedulerOptions options = replay_options("waiting-ratio");
  options.waiting.served_ratio = 0;
  const ReplayReport report = replay(trace, options, cost).value();
  EXPECT_NEAR(report.token_gaps.at("").percentile(1), 0.020, 0.001);
}

// Who comes while a step runs waits for its end, and with two in flight for the step behind it too.
TEST(Replay, TwoStepsInFlightDelayAFirstTokenByAStep) {
  const StepCost cost{.base = 0.010};
  const auto request = [](double arrival, uint64_t content, int32_t output) {
    return TraceRequest{.arrival_seconds = arrival,
                        .prompt = {{content, 32}},
                        .output = output,
                        .max_tokens = output};
  };
  const std::vector<TraceRequest> trace = {request(0, 1, 100), request(0.205, 2, 10)};
  SchedulerOptions options = replay_options("fcfs");
  const ReplayReport one = replay(trace, options, cost).value();
  options.steps_in_flight_max = 2;
  const ReplayReport two = replay(trace, options, cost).value();
  EXPECT_NEAR(one.rows[1].ttft, 0.015, 1e-6);  // the rest of a step, and its own
  EXPECT_NEAR(two.rows[1].ttft, 0.025, 1e-6);
  for (size_t i = 0; i < trace.size(); ++i) {
    EXPECT_NEAR(one.rows[i].tpot, 0.010, 1e-6);
    EXPECT_NEAR(two.rows[i].tpot, 0.010, 1e-6);
  }
  EXPECT_EQ(one.stats.generation_tokens, 110U);
  EXPECT_EQ(two.stats.generation_tokens, 110U);
}

}  // namespace
}  // namespace headrace::policies_test
