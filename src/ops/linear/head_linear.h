// head_linear: a product of each head with a matrix of its own, y_h = x_h W_h^T, all heads in one
// launch (the absorbed matrices of latent attention). Sums are in f32 and rounded once; a row's
// bits depend on its own alone, but where a step of few rows has a kernel of its own
// (DeviceTraits::batch_invariant forbids it).
#pragma once

#include <cstdint>

#include "ops/op.h"
#include "ops/packing/packed_weight.h"

namespace headrace {

struct HeadLinearArgs {
  int32_t heads = 0;  // H
  ConstTensorView x;  // [T, H x_step] of the activation type: of each head's x_step, K are read
  const LinearWeight* weight = nullptr;  // [H N, K] of x's type: rows [h N, (h + 1) N) are head h's
  TensorView y;  // [T, H y_step] of x's type: of each head's y_step, N are written

  int64_t head_rows() const { return weight->n() / heads; }  // N
};

void head_linear(OpContext& context, const HeadLinearArgs& args);

OpCost op_cost(const HeadLinearArgs& args);
const KernelSet<HeadLinearArgs>& head_linear_kernels();
KernelTable<HeadLinearArgs> head_linear_cpu_kernels();
KernelTable<HeadLinearArgs> head_linear_cuda_kernels();

}  // namespace headrace
