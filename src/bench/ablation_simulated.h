// Ablations that need more traffic than a machine answers in an hour: the real scheduler and cache,
// in virtual time, with the step cost of an H200 that serves an 8B model (sim/trace_replay.h).
#pragma once

#include "bench/ablation.h"
#include "sim/trace_replay.h"

namespace headrace {

struct SimulatedSetup {
  TraceOptions trace;  // drawn anew each round
  double load = 0;     // of what fcfs does when saturated; 0: trace.rate as it is
  SchedulerOptions scheduler = {.max_num_batched_tokens = 2048, .policy = "fcfs"};
  int32_t kv_tokens = 0;                  // 0: the machine's
  void (*edit)(TraceRequest&) = nullptr;  // each request, before the replay
  bool live_only = false;                 // requests in the background are left out
};

using ReportFigure = double (*)(const ReplayReport& report);
AblationMeasure simulated(SimulatedSetup setup, ReportFigure figure);

// Seconds.
double ttft_p50(const ReplayReport& report);
double ttft_p99(const ReplayReport& report);
double completion_mean(const ReplayReport& report);
// Requests a second with a first token within 0.5 s and 30 ms per later token.
double requests_in_time(const ReplayReport& report);

}  // namespace headrace
