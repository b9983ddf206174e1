// RMSNorm (Zhang and Sennrich, 2019), with the residual addition that comes before it in a block:
//   x := x + residual_scale * residual;   out = x / sqrt(mean(x^2) + eps) * weight.
// Of a row in groups, equal parts side by side (heads), each has a mean of its own.
#pragma once

#include "ops/op.h"

namespace headrace {

struct RmsNormArgs {
  TensorView x;  // [T, D] f32 (CUDA also f16, bf16); written only if there is a residual
  ConstTensorView residual;  // [T, D] of x's type, or no data
  const float* weight;       // [D / groups], in device memory
  float eps;
  TensorView out;               // [T, D] of x's type; may be x itself, on the CPU the residual too
  float residual_scale = 1.0f;  // Granite's residual multiplier
  int32_t groups = 1;           // divides D
};

// Row t of the results depends on row t of the arguments alone, bit for bit.
void rms_norm(OpContext& context, const RmsNormArgs& args);

OpCost op_cost(const RmsNormArgs& args);
const KernelSet<RmsNormArgs>& rms_norm_kernels();
KernelTable<RmsNormArgs> rms_norm_cpu_kernels();
KernelTable<RmsNormArgs> rms_norm_cuda_kernels();

}  // namespace headrace
