// gated_linear: y = act(gate) * up where [gate, up] = x W^T (+ bias), the first half of a gated
// feed-forward network (Shazeer, 2020) as one op, so that a device may keep gate and up in
// registers.
#pragma once

#include "ops/linear/linear.h"
#include "ops/rows/activation_row.h"

namespace headrace {

struct GatedLinearArgs {
  ConstTensorView x;           // [M, K] as of linear
  const LinearWeight* weight;  // [2F, K]: gate's rows, then up's
  const float* bias;           // [2F] in device memory, or null
  Activation activation = Activation::kSilu;
  TensorView gate_up;  // [M, 2F] of x's type, dense: scratch, for kernels that need it
  TensorView y;  // [M, F] of x's type; apart from x, and from gate_up or (CPU) its first F columns
};

// What is multiplied where gate and up are columns of one product, and what then makes y of it.
LinearArgs gate_up_product(const GatedLinearArgs& args);
void activate_gate_up(OpContext& context, const GatedLinearArgs& args);

// Takes linear_workspace_bytes(M, weight) of the context's workspace for the time of the call.
// `two_ops` is linear, then gated_activation: gate and up are rounded to x's type in between.
void gated_linear(OpContext& context, const GatedLinearArgs& args);
const KernelSet<GatedLinearArgs>& gated_linear_kernels();
KernelTable<GatedLinearArgs> gated_linear_cuda_kernels();

}  // namespace headrace
