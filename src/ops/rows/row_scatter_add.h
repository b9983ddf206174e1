// out[rows[i]] += scales[i] * x[i]: what an expert computes goes to the rows that chose it.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace headrace {

struct RowScatterAddArgs {
  ConstTensorView x;              // [R, D] f32
  std::span<const int32_t> rows;  // [R], each in [0, T), none twice
  std::span<const float> scales;  // [R]
  TensorView out;                 // [T, D] f32; no overlap with x
};

// The product is rounded, then the sum.
void row_scatter_add(OpContext& context, const RowScatterAddArgs& args);

OpCost op_cost(const RowScatterAddArgs& args);
const KernelSet<RowScatterAddArgs>& row_scatter_add_kernels();
KernelTable<RowScatterAddArgs> row_scatter_add_cpu_kernels();

}  // namespace headrace
