// Replays a trace through the real scheduler and prefix cache in virtual time: a step takes what a
// cost model says, and nothing is computed. The same trace and options give the same report.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sched/scheduler.h"
#include "sched/trace.h"

namespace headrace {

// Seconds of a step: base + what its tokens cost. A prompt token's share is of the matrices, a
// decode's of the weights read (base) and of its keys and values.
struct StepCost {
  double base = 0;
  double per_prompt_token = 0;
  double per_decode = 0;
  double per_kv_token = 0;  // keys and values that decodes read
};
struct MachineRow {
  std::string_view name;
  StepCost cost;
  int32_t kv_tokens = 0;  // that fit its memory
};
// Estimates, not measurements. cpu-135m: the order of SmolLM2-135M on two cores. h200-8b: from the
// weights' bytes, the measured bandwidth and 50k prompt tokens a second.
Result<MachineRow> find_machine(std::string_view name);
std::vector<std::string> machine_names();

struct ReplayReport {
  struct Row {
    double ttft = 0, tpot = 0,
           completion = 0;        // seconds; from arrival, per later token, to the end
    double completion_alone = 0;  // if it had the machine for itself
    bool refused = false;
    std::string tenant;
    int32_t slo_class = 0;
  };
  std::vector<Row> rows;  // in the order of the trace
  double seconds = 0;     // of virtual time
  int64_t steps = 0;
  double running_mean = 0;       // sequences that run, over time
  double waste = 0;              // 1 - tokens held / slots of held pages, over time
  double scheduler_seconds = 0;  // real time of plan() and apply()
  SchedulerStats stats;
};
// p50 of nothing is 0.
double percentile_of(std::vector<double> values, double share);

Result<ReplayReport> replay(const std::vector<TraceRequest>& trace, SchedulerOptions options,
                            const StepCost& cost);

}  // namespace headrace
