// D1 and S9: who gets a request behind a router, and what becomes of a stream whose worker dies.
#include <fmt/format.h>

#include "bench/ablation.h"
#include "bench/route_replay.h"

namespace headrace {
namespace {

constexpr int kRoutedRequests = 2000;
constexpr double kRoutedRate = 40;  // a second
constexpr int kRoutedWorkers = 4;
constexpr int32_t kRoutedKvTokens = 64 << 10;  // of a worker

// Seconds to the first token, half of all requests', in virtual time.
AblationMeasure routed_first_token(RoutePolicyKind policy, bool agents) {
  return [=](AblationBench& bench) -> Result<double> {
    std::vector<TraceRequest> trace;
    if (agents) {
      HR_ASSIGN_OR_RETURN(trace, agents_trace(kRoutedRequests, kRoutedRate, bench.seed()));
    } else {
      trace = talks_trace(kRoutedRequests, kRoutedRate, bench.seed());
    }
    const RouteReplay replay(std::move(trace), kRoutedWorkers, kRoutedKvTokens);
    HR_ASSIGN_OR_RETURN(const RouteReplay::Outcome outcome, replay.routed(policy));
    return outcome.ttft_p50;
  };
}

// Seconds from a worker's end to the end of a stream that had `done` of its tokens: another reads
// prompt and tokens as one prompt and goes on, or begins anew.
AblationMeasure finished_elsewhere(bool resumes, int32_t prompt, int32_t done, int32_t left) {
  return [=](AblationBench& bench) -> Result<double> {
    const WorkItem item = resumes ? WorkItem{.prompt = prompt + done, .output = left}
                                  : WorkItem{.prompt = prompt, .output = done + left};
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, bench.run({&item, 1}));
    return result.seconds;
  };
}

}  // namespace

std::vector<AblationCase> routed_cases() {
  std::vector<AblationCase> cases;
  for (const bool agents : {true, false}) {
    cases.push_back({.name = agents ? "agents, 4 workers" : "talks, 4 workers",
                     .what = "first token p50",
                     .on = routed_first_token(RoutePolicyKind::kPrefixAware, agents),
                     .off = routed_first_token(RoutePolicyKind::kRoundRobin, agents),
                     .simulated = true});
  }
  return cases;
}

std::vector<AblationCase> resumed_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t done : {32, 128, 480}) {
    cases.push_back({.name = fmt::format("a stream of 512 tokens dies behind {}", done),
                     .what = "until its end",
                     .on = finished_elsewhere(true, 128, done, 512 - done),
                     .off = finished_elsewhere(false, 128, done, 512 - done)});
  }
  return cases;
}

}  // namespace headrace
