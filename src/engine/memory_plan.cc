#include "engine/memory_plan.h"

#include <algorithm>

#include <fmt/format.h>

namespace headrace {
namespace {

// Kernels of cuBLASLt and our own are loaded lazily; some tens of MiB were seen on an H200.
constexpr int64_t kReserveBytes = 256 << 20;
double gib(int64_t bytes) { return static_cast<double>(bytes) / (1 << 30); }

// Of a page, with what it has beside the pool.
int64_t page_bytes_of_all(const MemoryPlanInput& input) {
  return input.page_bytes + input.unpacked_page_bytes;
}

Status too_little(const MemoryPlanInput& input, int64_t kv_bytes) {
  return exhausted(fmt::format(
      "{:.2f} GiB are left for keys and values, one sequence of --max-model-len needs {:.2f}: "
      "lower --max-model-len, --max-num-seqs or --max-num-batched-tokens{}, or raise "
      "--gpu-memory-utilization ({:.2f} of {:.1f} GiB; {:.1f} GiB are free before them)",
      gib(std::max<int64_t>(kv_bytes, 0)), gib(input.pages_min * page_bytes_of_all(input)),
      input.adapter_bytes > 0 ? fmt::format(", or --max-cpu-loras and --max-lora-rank ({:.2f} GiB)",
                                            gib(input.adapter_bytes))
                              : "",
      input.utilization, gib(input.total_bytes), gib(input.free_bytes)));
}

}  // namespace

std::string MemoryPlan::to_string() const {
  const std::string adapters =
      adapter_bytes > 0 ? fmt::format("adapters {:.2f}, ", gib(adapter_bytes)) : "";
  const std::string unpacked =
      unpacked_page_bytes == 0
          ? ""
          : fmt::format("a layer of them unpacked {:.2f}, ", gib(page_count * unpacked_page_bytes));
  return fmt::format(
      "weights {:.2f} GiB, {}activations and tables {:.2f}, keys and values {:.2f} ({} pages), {}"
      "recorded steps {:.2f}, kernels {:.2f}, context and others {:.2f}, free {:.2f}",
      gib(weight_bytes), adapters, gib(runner_bytes), gib(page_count * page_bytes), page_count,
      unpacked, gib(recording_bytes), gib(reserve_bytes), gib(other_bytes), gib(free_after_bytes));
}

Result<MemoryPlan> plan_memory(const MemoryPlanInput& input) {
  const int64_t used = input.total_bytes - input.free_bytes;
  const auto budget =
      static_cast<int64_t>(input.utilization * static_cast<double>(input.total_bytes));
  const int64_t fixed = input.runner_bytes + input.recording_bytes + kReserveBytes;
  int64_t kv_bytes = std::min(budget - used, input.free_bytes) - fixed;
  const int64_t each = page_bytes_of_all(input);
  if (input.kv_bytes_wanted > 0) {
    // The flag is of the pool; what its pages have beside it comes to that.
    const int64_t wanted = input.kv_bytes_wanted / input.page_bytes * each;
    if (std::max(wanted, input.kv_bytes_wanted) > input.free_bytes - fixed) {
      return exhausted(fmt::format(
          "--kv-cache-memory-bytes asks for {:.2f} GiB, {:.2f} GiB are free beside activations "
          "({:.2f} GiB): lower it, or --max-num-batched-tokens",
          gib(input.kv_bytes_wanted), gib(std::max<int64_t>(input.free_bytes - fixed, 0)),
          gib(input.runner_bytes)));
    }
    kv_bytes = wanted;
  }
  const int64_t pages = std::min(kv_bytes / each, input.pages_max);
  if (kv_bytes < 0 || pages < input.pages_min) return too_little(input, kv_bytes);
  return MemoryPlan{.weight_bytes = input.weight_bytes,
                    .adapter_bytes = input.adapter_bytes,
                    .runner_bytes = input.runner_bytes,
                    .recording_bytes = input.recording_bytes,
                    .reserve_bytes = kReserveBytes,
                    .other_bytes = used - input.weight_bytes - input.adapter_bytes,
                    .page_count = pages,
                    .page_bytes = input.page_bytes,
                    .unpacked_page_bytes = input.unpacked_page_bytes,
                    .free_after_bytes = input.free_bytes - fixed - pages * each};
}

Result<int64_t> plan_host_pages(const HostMemoryInput& input) {
  const int64_t left = input.free_bytes - input.runner_bytes - input.tier_bytes;
  if (left < 0) {
    return exhausted(fmt::format(
        "activations{} need {:.2f} GiB of memory{}, {:.2f} GiB are free beside the weights: lower "
        "--max-num-batched-tokens{} or --max-model-len{}",
        input.keeps_states ? " and states" : "", gib(input.runner_bytes),
        input.tier_bytes > 0
            ? fmt::format(" and --kv-offloading-size {:.2f}", gib(input.tier_bytes))
            : "",
        gib(input.free_bytes), input.keeps_states ? ", --max-num-seqs, --state-checkpoints" : "",
        input.tier_bytes > 0 ? ", or --kv-offloading-size" : ""));
  }
  if (input.kv_bytes_wanted > left) {
    return exhausted(
        fmt::format("--kv-cache-memory-bytes asks for {:.2f} GiB, {:.2f} GiB are free beside "
                    "weights and activations ({:.2f} GiB): lower it",
                    gib(input.kv_bytes_wanted), gib(left), gib(input.runner_bytes)));
  }
  const bool asked = input.kv_bytes_wanted > 0;
  const int64_t bytes = asked ? input.kv_bytes_wanted : std::min(input.kv_bytes_default, left / 4);
  const int64_t pages = std::min(bytes / input.page_bytes, input.pages_max);
  if (pages >= input.pages_min) return pages;
  return exhausted(fmt::format("{} bytes of KV cache hold no block of {} bytes: {}", bytes,
                               input.pages_min * input.page_bytes,
                               asked ? "raise --kv-cache-memory-bytes"
                                     : "set --kv-cache-memory-bytes, or free some memory"));
}

}  // namespace headrace
