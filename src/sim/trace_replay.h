// Replays a trace through the real scheduler and prefix cache in virtual time: a step takes what a
// cost model says, and nothing is computed. The same trace and options give the same report.
#pragma once

#include <cstdint>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"
#include "sched/scheduler.h"
#include "sched/step_cost.h"
#include "sim/trace.h"

namespace headrace {

// How long things took: counts in buckets 2 % wide, so that a million requests fit in memory.
class LatencyHistogram {
 public:
  void add(double seconds);
  int64_t count() const { return count_; }
  double percentile(double share) const;  // 0 of nothing

 private:
  static constexpr double kLeast = 1e-5, kStep = 1.02;
  std::vector<int64_t> buckets_;
  int64_t count_ = 0;
  double last_seconds_ = -1;  // what was added last, and where
  size_t last_bucket_ = 0;
};

struct MachineRow {
  std::string_view name;
  StepCost cost;
  int32_t kv_tokens = 0;  // that fit its memory
};
// cpu-135m: the order of SmolLM2-135M on two cores, an estimate. h200-8b: close to the steps of the
// 8B shape in bench/results/h200.jsonl. A real machine's: `headrace bench fit`.
Result<MachineRow> find_machine(std::string_view name);
std::vector<std::string> machine_names();

struct ReplayReport {
  struct Row {
    double ttft = 0, tpot = 0,
           completion = 0;  // seconds; from arrival, per later token, to the end
    double normalised() const { return completion / output; }  // seconds per output token
    int32_t output = 1;
    bool refused = false;
    bool background = false;
    std::string tenant;
    int32_t slo_class = 0;
  };
  std::vector<Row> rows;                               // in the order of the trace
  std::map<std::string, LatencyHistogram> token_gaps;  // between tokens of a stream, by tenant
  double seconds = 0;                                  // of virtual time
  int64_t steps = 0;
  double running_mean = 0;       // sequences that run, over time
  KvWaste kv_slots;              // of one step of 64, times its microseconds
  int64_t computed_tokens = 0;   // prompts and answers, whoever they were for
  double scheduler_seconds = 0;  // real time of plan() and apply()
  double busy_seconds = 0;       // in steps
  // Until the last request came: what ends after that is no sign of throughput.
  double arrivals_seconds = 0;
  int64_t arrivals_tokens = 0;
  // Until the last moment at which somebody live waited: with all there from the start, what the
  // machine does when it is full.
  double waited_seconds = 0;
  int64_t waited_tokens = 0;
  // Of steps with background work while live requests were there, and no live prompt in them.
  double beside_seconds_max = 0;
  int64_t background_tokens = 0;  // computed for background requests, prompts and outputs
  SchedulerStats stats;
};
// p50 of nothing is 0.
double percentile_of(std::vector<double> values, double share);

Result<ReplayReport> replay(const std::vector<TraceRequest>& trace, SchedulerOptions options,
                            const StepCost& cost);

// Requests a second of the trace's live mix that the machine ends when it is never idle, first come
// first served: load 1. Replays the trace with all of it there at the start.
Result<double> saturated_rate(std::vector<TraceRequest> trace, SchedulerOptions options,
                              const StepCost& cost);

// What no policy, however much it knows, can bring the mean time to the end below if it keeps up
// with the arrivals. The greater of two bounds: everybody alone on the machine; and Little's law:
// steps of n rows take base + n per_decode, so only so many steps fit into the time, and so many
// rows, sequences that have not ended, must be in each to bring all the tokens.
double completion_mean_floor(const std::vector<TraceRequest>& trace,
                             const SchedulerOptions& options, const StepCost& cost);

}  // namespace headrace
