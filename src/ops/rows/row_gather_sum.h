// out[t] = sum of scales[p] * x[p] over the places p of row t: what experts have computed comes
// together, in the order in which a row has its places.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace headrace {

struct RowGatherSumArgs {
  ConstTensorView x;                // [R, D] f32 (CUDA: the model's activation type)
  std::span<const int32_t> places;  // [T n], each in [0, R): those of row t from t n on; -1: none
  std::span<const float> scales;    // [R], or empty: all are 1
  TensorView out;                   // [T, D] of x's type; no overlap with x
};

// Products are rounded to f32, and so are sums.
void row_gather_sum(OpContext& context, const RowGatherSumArgs& args);

OpCost op_cost(const RowGatherSumArgs& args);
const KernelSet<RowGatherSumArgs>& row_gather_sum_kernels();
KernelTable<RowGatherSumArgs> row_gather_sum_cpu_kernels();
KernelTable<RowGatherSumArgs> row_gather_sum_cuda_kernels();

}  // namespace headrace
