// LayerNorm (Ba, Kiros and Hinton, 2016), with the residual addition that comes before it in a
// block:
//   x := x + residual_scale * residual
//   out = (x - mean(x)) / sqrt(variance(x) + eps) * weight + bias
// Of a row in groups, equal parts side by side (heads), each has a mean and a variance of its own.
#pragma once

#include "ops/op.h"

namespace headrace {

struct LayerNormArgs {
  TensorView x;  // [T, D] f32 (CUDA: the model's activation type); written only with a residual
  ConstTensorView residual;  // [T, D] of x's type, or no data
  const float* weight;       // [D], in device memory
  const float* bias;         // [D], in device memory
  float eps;
  TensorView out;  // [T, D] of x's type; may be x itself, on the CPU the residual too
  float residual_scale = 1.0f;
  int32_t groups = 1;  // divides D
};

// Row t of the results depends on row t of the arguments alone, bit for bit.
void layer_norm(OpContext& context, const LayerNormArgs& args);

OpCost op_cost(const LayerNormArgs& args);
const KernelSet<LayerNormArgs>& layer_norm_kernels();
KernelTable<LayerNormArgs> layer_norm_cpu_kernels();
KernelTable<LayerNormArgs> layer_norm_cuda_kernels();

}  // namespace headrace
