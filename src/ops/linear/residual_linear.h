// residual_linear: the product at the end of a residual branch, x := x + scale * (in W^T (+ bias)),
// where the sum may be left to the norm that reads x next.
#pragma once

#include "ops/linear/linear.h"

namespace headrace {

struct ResidualLinearArgs {
  ConstTensorView in;          // [M, K] of the activation type
  const LinearWeight* weight;  // [N, K]
  const float* bias;           // [N] in device memory, or null
  float scale = 1.0f;          // of the product
  TensorView x;                // [M, N] of in's type
  TensorView branch;           // [M, N] of in's type; apart from in
};

// True: x has the sum. False: x is as it was, `branch` is the product, and rms_norm, layer_norm or
// residual_add must add it with args.scale.
// `later` is linear into branch; `accumulated` (many rows of a GPU; scale 1) is linear with
// LinearOutput::kAccumulate into x: the product is not rounded before it is added, and the norm
// after it reads and writes a row less. `cuda/resident` (resident.h) does the same.
// Takes linear_workspace_bytes(M, weight) of the context's workspace for the time of the call.
bool residual_linear(OpContext& context, const ResidualLinearArgs& args);
const KernelSet<ResidualLinearArgs>& residual_linear_kernels();
KernelTable<ResidualLinearArgs> residual_linear_cuda_kernels();

// The product alone, for ops that have something else in one with it: into x (kAccumulate) where
// `accumulated` would be the choice, else into branch, as `later`.
LinearArgs residual_product(const DeviceTraits& traits, const ResidualLinearArgs& args);

}  // namespace headrace
