// What the policies do to prefix caches: a trace is split over four workers by the router's own
// table and policies, and each worker's part is replayed by the real scheduler and prefix cache in
// virtual time, beside one machine with all of the memory that gets the whole trace.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdio>
#include <functional>
#include <map>
#include <numeric>
#include <string>
#include <vector>

#include "base/clock.h"
#include "base/rng.h"
#include "route/worker_table.h"
#include "sim/trace.h"
#include "sim/trace_replay.h"

namespace headrace {
namespace {

constexpr int kWorkers = 4;

// What the router would read of the request's text.
RequestFacts facts_of(const TraceRequest& request) {
  RequestFacts facts;
  facts.kind = RouteKind::kCompute;
  facts.prompt_tokens = request.prompt_tokens();
  facts.output_tokens = request.max_tokens;
  const std::vector<TokenId> tokens = prompt_of(request, 32000);
  uint64_t chain = 1;
  for (size_t i = 0; i < tokens.size(); ++i) {
    chain = mix64(chain ^ static_cast<uint64_t>(tokens[i]));
    if ((i + 1) % kTokensPerRouteBlock == 0) facts.blocks.push_back(chain);
  }
  return facts;
}

// People who talk with one assistant: its system prompt, then turns, each with all that was said.
std::vector<TraceRequest> talks(int count, double rate, uint64_t seed) {
  Rng rng(seed);
  std::vector<std::vector<PromptSpan>> said(60);
  std::vector<TraceRequest> trace;
  uint64_t content = 1000;
  double now = 0;
  for (int i = 0; i < count; ++i) {
    now += -std::log(1 - rng.uniform()) / rate;
    std::vector<PromptSpan>& talk = said[rng.below(said.size())];
    int32_t tokens = 0;
    for (const PromptSpan& span : talk) tokens += span.tokens;
    if (talk.empty() || tokens > 3000) talk = {{1, 400}};
    talk.push_back({++content, static_cast<int32_t>(rng.between(50, 400))});
    TraceRequest request;
    request.arrival_seconds = now;
    request.prompt = talk;
    request.output = static_cast<int32_t>(rng.between(20, 400));
    request.max_tokens = 512;
    trace.push_back(std::move(request));
  }
  return trace;
}

std::vector<TraceRequest> agents(int count, double rate, uint64_t seed) {
  TraceOptions options;
  options.kind = "agentic";
  options.requests = count;
  options.rate = rate;
  options.seed = seed;
  return *make_trace(options);
}

class Replays {
 public:
  Replays(std::vector<TraceRequest> trace, int32_t kv_tokens_a_worker)
      : trace_(std::move(trace)), kv_tokens_(kv_tokens_a_worker) {}

  struct Outcome {
    double hit_rate = 0, ttft_p50 = 0;
    int most = 0, least = 0;  // requests of a worker
  };

  Outcome routed(RoutePolicyKind kind) const {
    std::vector<std::vector<TraceRequest>> parts = split(kind);
    Outcome outcome;
    uint64_t hits = 0, queries = 0;
    std::vector<double> ttft;
    outcome.least = static_cast<int>(trace_.size());
    for (std::vector<TraceRequest>& part : parts) {
      outcome.most = std::max(outcome.most, static_cast<int>(part.size()));
      outcome.least = std::min(outcome.least, static_cast<int>(part.size()));
      const ReplayReport report = run(part, kv_tokens_);
      hits += report.stats.prefix_cache_hits;
      queries += report.stats.prefix_cache_queries;
      for (const auto& row : report.rows) ttft.push_back(row.ttft);
    }
    outcome.hit_rate = static_cast<double>(hits) / static_cast<double>(queries);
    outcome.ttft_p50 = percentile_of(ttft, 0.5);
    return outcome;
  }

  // One cache as large as all; what it takes time is left out.
  double big_cache_hit_rate() const {
    const ReplayReport report = run(trace_, kWorkers * kv_tokens_);
    return static_cast<double>(report.stats.prefix_cache_hits) /
           static_cast<double>(report.stats.prefix_cache_queries);
  }

 private:
  std::vector<std::vector<TraceRequest>> split(RoutePolicyKind kind) const {
    VirtualClock clock;
    WorkerTable table({.policy = kind, .prefix_tokens = static_cast<size_t>(kv_tokens_)}, clock);
    WorkerReport ready;
    ready.health = WorkerReport::Health::kReady;
    for (int i = 0; i < kWorkers; ++i) {
      const int id = table.add({.tls = false, .host = std::to_string(i), .port = "1", .path = "/"});
      table.report(id, ready);
    }
    std::multimap<double, WorkerLease> running;
    std::vector<std::vector<TraceRequest>> parts(kWorkers);
    for (const TraceRequest& request : trace_) {
      running.erase(running.begin(), running.upper_bound(request.arrival_seconds));
      auto lease = table.choose(facts_of(request), {});
      parts[static_cast<size_t>(lease->id())].push_back(request);
      running.emplace(request.arrival_seconds + 0.2 + 0.01 * request.output, *std::move(lease));
    }
    return parts;
  }

  static ReplayReport run(const std::vector<TraceRequest>& trace, int32_t kv_tokens) {
    SchedulerOptions options;
    options.max_model_len = 4096;
    options.groups = {{.block_tokens = 16}};
    options.block_count = kv_tokens / 16;
    options.max_num_seqs = 256;
    options.max_queued_requests = static_cast<int32_t>(trace.size());
    return *replay(trace, options, find_machine("h200-8b")->cost);
  }

  const std::vector<TraceRequest> trace_;
  const int32_t kv_tokens_;
};

void expect_prefixes_are_kept(const char* name, const Replays& replays) {
  const double big = replays.big_cache_hit_rate();
  const Replays::Outcome aware = replays.routed(RoutePolicyKind::kPrefixAware);
  const Replays::Outcome blind = replays.routed(RoutePolicyKind::kRoundRobin);
  std::printf(
      "%s: hit rate of one big cache %.3f, prefix-aware %.3f (%.2f of it), round robin %.3f; first "
      "token p50 %.1f and %.1f ms; requests of a worker %d to %d\n",
      name, big, aware.hit_rate, aware.hit_rate / big, blind.hit_rate, 1e3 * aware.ttft_p50,
      1e3 * blind.ttft_p50, aware.least, aware.most);
  EXPECT_GE(aware.hit_rate, 0.95 * big);
  EXPECT_LT(blind.hit_rate, 0.9 * aware.hit_rate);
  EXPECT_LE(2 * aware.ttft_p50, blind.ttft_p50);
  EXPECT_LE(aware.most, 2 * aware.least);  // nobody is left idle for it
}

TEST(RouteTrace, PrefixAwareKeepsTheHitsOfOneBigCacheOfAgents) {
  expect_prefixes_are_kept("agents", Replays(agents(4000, 40, 1), 64 << 10));
}

TEST(RouteTrace, PrefixAwareKeepsTheHitsOfOneBigCacheOfTalks) {
  expect_prefixes_are_kept("talks", Replays(talks(4000, 40, 1), 64 << 10));
}

// Reading a request and choosing among workers whose indexes are full.
TEST(RouteDecision, TakesMicroseconds) {
  VirtualClock clock;
  WorkerTable table({.prefix_tokens = 256 << 10}, clock);
  WorkerReport ready;
  ready.health = WorkerReport::Health::kReady;
  for (int i = 0; i < kWorkers; ++i) {
    table.report(table.add({.tls = false, .host = std::to_string(i), .port = "1", .path = "/"}),
                 ready);
  }
  constexpr int kRequests = 4000;
  std::vector<HttpRequest> requests;
  for (int i = 0; i < kRequests; ++i) {
    HttpRequest& request = requests.emplace_back();
    request.method = "POST";
    request.path = "/v1/chat/completions";
    request.body = R"({"model":"m","messages":[{"role":"user","content":")" +
                   std::string(3500, static_cast<char>('a' + i % 20)) + std::to_string(i) +
                   std::string(500, 'x') + R"("}],"stream":true})";
  }
  const SystemClock time;
  double read = 1, choose = 1;  // seconds of a request, of the best hundred in a row
  for (int round = 0; round < kRequests / 100; ++round) {
    std::vector<RequestFacts> facts;
    const double begin = time.now_seconds();
    for (int i = 0; i < 100; ++i)
      facts.emplace_back(requests[static_cast<size_t>(round * 100 + i)]);
    const double between = time.now_seconds();
    for (const RequestFacts& each : facts) ASSERT_TRUE(table.choose(each, {}));
    const double end = time.now_seconds();
    read = std::min(read, (between - begin) / 100);
    choose = std::min(choose, (end - between) / 100);
  }
  std::printf("a request of 4 KB: read in %.1f us, a worker chosen in %.1f us\n", 1e6 * read,
              1e6 * choose);
  EXPECT_LT(read + choose, 200e-6);  // of a machine that does much else
}

}  // namespace
}  // namespace headrace
