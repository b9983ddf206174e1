// What a router's policy does to prefix caches: a trace is split over workers by the router's own
// table and policies, and each worker's part is replayed by the real scheduler and prefix cache in
// virtual time, beside one machine with all of the memory that gets the whole trace.
#pragma once

#include <cstdint>
#include <vector>

#include "base/status.h"
#include "route/route_policy.h"
#include "sim/trace.h"

namespace headrace {

// People who talk with one assistant: its system prompt, then turns, each with all that was said.
std::vector<TraceRequest> talks_trace(int count, double rate, uint64_t seed);
// Agents with long instructions that call tools (TraceOptions::kind "agentic").
Result<std::vector<TraceRequest>> agents_trace(int count, double rate, uint64_t seed);

class RouteReplay {
 public:
  // On machines of the simulator's row h200-8b.
  RouteReplay(std::vector<TraceRequest> trace, int workers, int32_t kv_tokens_a_worker)
      : trace_(std::move(trace)), workers_(workers), kv_tokens_(kv_tokens_a_worker) {}

  struct Outcome {
    double hit_rate = 0;      // tokens of prompts that were found in a cache, of all
    double ttft_p50 = 0;      // seconds to the first token
    int most = 0, least = 0;  // requests of a worker
  };
  Result<Outcome> routed(RoutePolicyKind policy) const;
  // One cache as large as all; what it takes time is left out.
  Result<double> big_cache_hit_rate() const;

 private:
  std::vector<std::vector<TraceRequest>> split(RoutePolicyKind policy) const;

  const std::vector<TraceRequest> trace_;
  const int workers_;
  const int32_t kv_tokens_;
};

}  // namespace headrace
