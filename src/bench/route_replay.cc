#include "bench/route_replay.h"

#include <algorithm>
#include <cmath>
#include <map>
#include <string>
#include <utility>

#include "base/clock.h"
#include "base/rng.h"
#include "route/worker_table.h"
#include "sim/trace_replay.h"

namespace headrace {
namespace {

// What the router would read of the request's text.
RequestFacts route_facts_of(const TraceRequest& request) {
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

Result<ReplayReport> replay_part(const std::vector<TraceRequest>& trace, int32_t kv_tokens) {
  HR_ASSIGN_OR_RETURN(const MachineRow machine, find_machine("h200-8b"));
  SchedulerOptions options;
  options.max_model_len = 4096;
  options.groups = {{.block_tokens = 16}};
  options.block_count = kv_tokens / 16;
  options.max_num_seqs = 256;
  options.max_queued_requests = static_cast<int32_t>(trace.size());
  return replay(trace, options, machine.cost);
}

}  // namespace

// People who talk with one assistant: its system prompt, then turns, each with all that was said.
std::vector<TraceRequest> talks_trace(int count, double rate, uint64_t seed) {
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

Result<std::vector<TraceRequest>> agents_trace(int count, double rate, uint64_t seed) {
  TraceOptions options;
  options.kind = "agentic";
  options.requests = count;
  options.rate = rate;
  options.seed = seed;
  return make_trace(options);
}

Result<RouteReplay::Outcome> RouteReplay::routed(RoutePolicyKind policy) const {
  Outcome outcome;
  uint64_t hits = 0, queries = 0;
  std::vector<double> ttft;
  outcome.least = static_cast<int>(trace_.size());
  for (const std::vector<TraceRequest>& part : split(policy)) {
    outcome.most = std::max(outcome.most, static_cast<int>(part.size()));
    outcome.least = std::min(outcome.least, static_cast<int>(part.size()));
    HR_ASSIGN_OR_RETURN(const ReplayReport report, replay_part(part, kv_tokens_));
    hits += report.stats.prefix_cache_hits;
    queries += report.stats.prefix_cache_queries;
    for (const auto& row : report.rows) ttft.push_back(row.ttft);
  }
  outcome.hit_rate = static_cast<double>(hits) / static_cast<double>(queries);
  outcome.ttft_p50 = percentile_of(ttft, 0.5);
  return outcome;
}

Result<double> RouteReplay::big_cache_hit_rate() const {
  HR_ASSIGN_OR_RETURN(const ReplayReport report, replay_part(trace_, workers_ * kv_tokens_));
  return static_cast<double>(report.stats.prefix_cache_hits) /
         static_cast<double>(report.stats.prefix_cache_queries);
}

std::vector<std::vector<TraceRequest>> RouteReplay::split(RoutePolicyKind policy) const {
  VirtualClock clock;
  WorkerTable table(
      {.policy = policy, .choice = {}, .prefix_tokens = static_cast<size_t>(kv_tokens_)}, clock);
  WorkerReport ready;
  ready.health = WorkerReport::Health::kReady;
  for (int i = 0; i < workers_; ++i) {
    const int id = table.add({.tls = false, .host = std::to_string(i), .port = "1", .path = "/"});
    table.report(id, ready);
  }
  std::multimap<double, WorkerLease> running;
  std::vector<std::vector<TraceRequest>> parts(static_cast<size_t>(workers_));
  for (const TraceRequest& request : trace_) {
    running.erase(running.begin(), running.upper_bound(request.arrival_seconds));
    auto lease = table.choose(route_facts_of(request), {});
    parts[static_cast<size_t>(lease->id())].push_back(request);
    running.emplace(request.arrival_seconds + 0.2 + 0.01 * request.output, *std::move(lease));
  }
  return parts;
}

}  // namespace headrace
