// norm_add: x := factor * (x + norm(scale * y)), an RMSNorm of each group of columns: what layers
// read of a token, of its own table and of its embedding (Gemma 3n, 4).
#pragma once

#include "ops/op.h"

namespace headrace {

struct NormAddArgs {
  TensorView x;         // [T, D] of the model's activation type, in place
  ConstTensorView y;    // [T, D] of x's type; no overlap with x
  const float* weight;  // [G], of a group, in device memory; G divides D
  int64_t group = 0;    // G
  float eps = 0.0f;
  float scale = 1.0f;
  float factor = 1.0f;
};

// Row t of the results depends on row t of the arguments alone, bit for bit.
void norm_add(OpContext& context, const NormAddArgs& args);

OpCost op_cost(const NormAddArgs& args);
const KernelSet<NormAddArgs>& norm_add_kernels();
KernelTable<NormAddArgs> norm_add_cpu_kernels();
KernelTable<NormAddArgs> norm_add_cuda_kernels();

}  // namespace headrace
