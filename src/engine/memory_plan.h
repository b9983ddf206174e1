// MemoryPlan: what memory is used for, decided at start. On a GPU it covers all of the memory, on a
// CPU what the host has left.
#pragma once

#include <cstdint>
#include <string>

#include "base/status.h"

namespace headrace {

// Page tables of the scheduler count in int32.
inline constexpr int64_t kPoolPagesMax = 1 << 30;

struct MemoryPlanInput {
  int64_t total_bytes = 0;      // of the device
  int64_t free_bytes = 0;       // now: weights, context and library are in place
  int64_t weight_bytes = 0;     // for the report
  int64_t adapter_bytes = 0;    // for the report: slots of adapters, which are in place
  int64_t runner_bytes = 0;     // model_runner_bytes(): not yet allocated
  int64_t recording_bytes = 0;  // model_recording_bytes(): what the driver takes for recorded steps
  double utilization = 0.9;     // --gpu-memory-utilization: share of total_bytes for all of it
  int64_t kv_bytes_wanted = 0;  // --kv-cache-memory-bytes; 0 = what is left
  int64_t page_bytes = 0;
  int64_t unpacked_page_bytes = 0;  // KvPlan: what a page has beside the pool
  int64_t pages_min = 0;            // what one sequence of --max-model-len needs
  int64_t pages_max = kPoolPagesMax;
};

struct MemoryPlan {
  int64_t weight_bytes = 0;
  int64_t adapter_bytes = 0;  // slots of adapters
  int64_t runner_bytes = 0;   // activations, logits, tables of slots, results
  int64_t recording_bytes = 0;
  int64_t reserve_bytes = 0;  // kernels that the driver loads when they are first launched
  int64_t other_bytes = 0;    // context, libraries, other programs
  int64_t page_count = 0;
  int64_t page_bytes = 0;
  int64_t unpacked_page_bytes = 0;
  int64_t free_after_bytes = 0;

  std::string to_string() const;  // one line, in GiB
};

// kExhausted naming the flag to change where one sequence of --max-model-len does not fit.
Result<MemoryPlan> plan_memory(const MemoryPlanInput& input);

// On a CPU other programs take and give memory too: the default is modest.
struct HostMemoryInput {
  int64_t free_bytes = 0;        // now: weights are in place
  int64_t runner_bytes = 0;      // model_runner_bytes(): not yet allocated
  bool keeps_states = false;     // of sequences, which are a part of these
  int64_t tier_bytes = 0;        // --kv-offloading-size
  int64_t kv_bytes_wanted = 0;   // --kv-cache-memory-bytes; 0 = kv_bytes_default
  int64_t kv_bytes_default = 0;  // at most a quarter of what is left is taken for it
  int64_t page_bytes = 0;
  int64_t pages_min = 0;  // what one block of tokens needs
  int64_t pages_max = kPoolPagesMax;
};

// Pages of keys and values. kExhausted naming the flag to change where it does not fit: pages are
// taken when they are first used, and memory that is not there then ends the process.
Result<int64_t> plan_host_pages(const HostMemoryInput& input);

}  // namespace headrace
