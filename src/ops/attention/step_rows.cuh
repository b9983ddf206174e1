// The rows of a step as kernels see them that go over rows, each of which attends keys of its own
// choice (select_keys.h, gather_keys.h): what the plan of the step lists.
#pragma once

#include "ops/attention/plan.h"

namespace headrace::gpu {

struct StepRows {
  const std::byte* plan;  // the arena of the step's plan, which lists rows
  int32_t kv_length_max;  // of its shape

  // REQUIRES: it lists rows
  static StepRows of(const AttentionPlan& plan) {
    CHECK(plan.shape.lists_rows && plan.shape.kv_length_max > 0);
    return {plan.device, plan.shape.kv_length_max};
  }

  __device__ __forceinline__ int32_t count() const {
    return reinterpret_cast<const AttentionPlanHeader*>(plan)->row_count;
  }
  // Rows of padding have the position of rows of no sequence, -1.
  __device__ __forceinline__ AttentionRow operator[](int32_t row) const {
    const auto& header = *reinterpret_cast<const AttentionPlanHeader*>(plan);
    if (row >= header.row_count) return {nullptr, -1};
    return reinterpret_cast<const AttentionRow*>(plan + header.rows_first)[row];
  }
  // The keys that a row sees. (A step of padding before the first request may have rows behind the
  // longest sequence.)
  __device__ __forceinline__ int32_t seen(int32_t row) const {
    return min((*this)[row].position + 1, kv_length_max);
  }
};

}  // namespace headrace::gpu
