// A list of requests of given lengths, all at once or by a timetable: random ids, greedy, ends
// ignored. What the bench commands time, and how.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "stack/model_stack.h"

namespace headrace {

struct WorkItem {
  int32_t prompt = 0;       // tokens, >= 1
  int32_t output = 0;       // tokens, >= 1
  double at_seconds = 0;    // submitted so long after the first; in ascending order
  bool background = false;  // Request::background
};

// Reads [[prompt, output], ...], or an object whose "requests" is that. Errors name the entry.
Result<std::vector<WorkItem>> read_workload(const Json& json, std::string_view name);
Result<std::vector<WorkItem>> read_workload_file(const std::string& path);

// Times of one request on the engine thread's clock, in seconds after the first submission.
struct WorkloadTimes {
  double submitted = 0;
  double first_token = 0;
  double last_token = 0;
  int32_t tokens = 0;
  std::vector<float> gaps;  // between emissions with tokens

  // Mean time between its tokens; 0 for a single one.
  double per_token() const { return tokens > 1 ? (last_token - first_token) / (tokens - 1) : 0.0; }
};

struct WorkloadResult {
  std::vector<WorkloadTimes> requests;  // in the order of the items
  double seconds = 0;                   // first submission to last token
  int64_t prompt_tokens = 0, output_tokens = 0;
  uint64_t steps = 0;
  // Rows of all steps, and those of answers that had ended; steps in which an ended row only held a
  // slot (static batches).
  uint64_t computed_tokens = 0, ended_row_tokens = 0, idle_row_steps = 0;
  // Computed again after a preemption; sampled for an answer that had already ended.
  uint64_t recomputed_tokens = 0, dropped_tokens = 0;
  KvWaste kv_slots;         // summed over one step of kKvSlotsEvery; all 0: there were fewer
  int64_t allocations = 0;  // of device memory, while it ran
  HostSeconds host;         // of all steps
  // Of steps with live work beside background work that could use it (SchedulerStats).
  double background_room_seconds = 0, background_used_seconds = 0;
  uint64_t background_room_tokens = 0, background_used_tokens = 0;
  double device_seconds = 0, device_gap_seconds = 0;  // of all steps; 0 on the CPU

  // Of the device's time while there was work.
  double device_gap_share() const {
    return device_gap_seconds / (device_seconds + device_gap_seconds);
  }
  // Of what was computed, what was for an answer that had not ended, and for the first time.
  double useful_share() const {
    const uint64_t in_vain = ended_row_tokens + recomputed_tokens + dropped_tokens;
    return 1 - static_cast<double>(in_vain) / static_cast<double>(computed_tokens);
  }
  double output_rate() const { return static_cast<double>(output_tokens) / seconds; }
};

// Submits the items in order, each when its time has come, and waits for the last token. Fails
// where a request did not give exactly its tokens. The engine must be idle and take that many
// requests.
Result<WorkloadResult> run_workload(ModelStack& stack, std::span<const WorkItem> items,
                                    uint64_t seed);

// The value below which `share` of the values lie (nearest rank). REQUIRES: values not empty
double percentile(std::vector<double> values, double share);

}  // namespace headrace
