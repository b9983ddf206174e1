// norm_linear and norm_gated_linear: RMSNorm and the product that reads its result as one op, so
// that a device may keep normalised rows where they are multiplied.
#pragma once

#include "ops/linear/gated_linear.h"
#include "ops/linear/linear.h"
#include "ops/rows/rms_norm.h"

namespace headrace {

struct NormLinearArgs {
  RmsNormArgs norm;   // `out` is scratch, for kernels that need it
  LinearArgs linear;  // of x = norm.out
};

struct NormGatedLinearArgs {
  RmsNormArgs norm;       // `out` is scratch, for kernels that need it
  GatedLinearArgs gated;  // of x = norm.out
};

// Take linear_workspace_bytes(M, weight) of the context's workspace for the time of the call.
// `two_ops` is rms_norm, then linear or gated_linear. Normalised rows are rounded to their type
// whatever kernel runs; norm.x is up to date afterwards where there is a residual.
void norm_linear(OpContext& context, const NormLinearArgs& args);
void norm_gated_linear(OpContext& context, const NormGatedLinearArgs& args);
const KernelSet<NormLinearArgs>& norm_linear_kernels();
KernelTable<NormLinearArgs> norm_linear_cuda_kernels();
const KernelSet<NormGatedLinearArgs>& norm_gated_linear_kernels();
KernelTable<NormGatedLinearArgs> norm_gated_linear_cuda_kernels();

}  // namespace headrace
