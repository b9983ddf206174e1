#include "stack/batch_choice.h"

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr std::string_view kAuto = "auto";

// Whose turn it is first under a policy.
std::string order_label(std::string_view policy) {
  if (policy == "fcfs") return std::string(to_string(RequestOrder::kArrival));
  if (policy.ends_with("-declared")) return std::string(to_string(RequestOrder::kDeclared));
  return fmt::format("order of {}", policy);
}

// Lengths are of use where the longest answer goes first.
JobWork job_under(const BatchShapeOptions& options) {
  if (options.policy == kAuto || options.policy == "ljf-declared") return options.job;
  return {.requests = options.job.requests};
}

}  // namespace

BatchShapeInput batch_machine(const Device& device, const Model& model, int64_t weight_bytes,
                              const KvPlan& kv, const MemoryOptions& options) {
  BatchShapeInput input{.on_gpu = device.kind() == DeviceKind::kCuda, .weight_bytes = weight_bytes};
  if (!input.on_gpu) return input;
  input.kv_token_bytes = kv.bytes_per_token();
  const auto step_bytes = [&](int32_t rows) {
    return model.workspace_bytes(rows, /*logit_rows=*/1, /*kv_length_max=*/1, /*thread_count=*/0);
  };
  input.step_token_bytes = (step_bytes(2048) - step_bytes(1024)) / 1024;
  const int64_t total = device.traits().memory_bytes, used = total - device.free_bytes();
  const auto budget =
      static_cast<int64_t>(options.gpu_memory_utilization * static_cast<double>(total));
  input.kv_room_bytes = options.kv_cache_memory_bytes > 0 ? options.kv_cache_memory_bytes
                                                          : budget - used - kGpuRunnerBytes;
  return input;
}

BatchChoice choose_batch(const BatchShapeOptions& options, BatchShapeInput machine) {
  machine.job = job_under(options);
  const BatchShape shape = choose_batch_shape(machine);
  const bool by_flags = options.max_num_seqs > 0 || options.max_num_batched_tokens > 0;
  BatchChoice choice{.max_num_seqs = options.max_num_seqs,
                     .max_num_batched_tokens = options.max_num_batched_tokens,
                     .policy = options.policy};
  if (choice.max_num_seqs == 0) {
    choice.max_num_seqs = machine.on_gpu ? shape.max_num_seqs : options.cpu_max_num_seqs;
  }
  if (choice.max_num_batched_tokens == 0) {
    choice.max_num_batched_tokens = shape.max_num_batched_tokens;
  }
  if (options.policy == kAuto) {
    choice.policy = "fcfs";
    choice.job_order = shape.order;
    choice.order_label = to_string(shape.order);
  } else {
    choice.order_label = order_label(options.policy);
  }
  choice.line = fmt::format("{} sequences at once, {} tokens a step, {} ({}{})",
                            choice.max_num_seqs, choice.max_num_batched_tokens, choice.order_label,
                            by_flags ? "by flags; else by " : "", shape.why);
  return choice;
}

}  // namespace headrace
