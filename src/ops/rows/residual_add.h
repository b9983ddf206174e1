// The residual connection where no norm follows to take it along: x := x + scale * residual.
#pragma once

#include "ops/op.h"

namespace headrace {

struct ResidualAddArgs {
  TensorView x;              // [T, D] f32 (CUDA: the model's activation type)
  ConstTensorView residual;  // [T, D] of x's type; may be x itself
  float scale = 1.0f;
};

// Rounds as rms_norm does with the same residual: fma(residual, scale, x).
void residual_add(OpContext& context, const ResidualAddArgs& args);

OpCost op_cost(const ResidualAddArgs& args);
const KernelSet<ResidualAddArgs>& residual_add_kernels();
KernelTable<ResidualAddArgs> residual_add_cpu_kernels();
KernelTable<ResidualAddArgs> residual_add_cuda_kernels();

}  // namespace headrace
