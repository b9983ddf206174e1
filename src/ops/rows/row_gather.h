// out[i] = x[rows[i]]: the rows of a batch whose logits are wanted, or a copy whose rows lie apart;
// with scales out[i] = scales[i] * x[rows[i]], rounded once: what experts read whose router scales
// it.
#pragma once

#include <cstdint>
#include <span>

#include "ops/op.h"

namespace headrace {

struct RowGatherArgs {
  ConstTensorView x;              // [T, D], any plain type
  std::span<const int32_t> rows;  // [R] each in [0, T), in device memory; empty: all, in order
  TensorView out;                 // [R, D] of x's type; no overlap with x
  // [R], in device memory, or empty. x is of the model's activation type where there are some.
  std::span<const float> scales = {};
};

void row_gather(OpContext& context, const RowGatherArgs& args);

OpCost op_cost(const RowGatherArgs& args);
const KernelSet<RowGatherArgs>& row_gather_kernels();
KernelTable<RowGatherArgs> row_gather_cpu_kernels();
KernelTable<RowGatherArgs> row_gather_cuda_kernels();
KernelTable<RowGatherArgs> row_gather_null_kernels();

}  // namespace headrace
