// scale_rows: x := (x + added) * scale / divisor, of layers that multiply their rows (MiniMax,
// Gemma 3n and 4).
#pragma once

#include "ops/op.h"

namespace headrace {

struct ScaleRowsArgs {
  TensorView x;                // [T, D] of the model's activation type, in place
  ConstTensorView added = {};  // [T, D] of x's type, or no data
  float scale = 1.0f;
  float divisor = 1.0f;
};

// Each operation is rounded to f32, the result once more to x's type.
void scale_rows(OpContext& context, const ScaleRowsArgs& args);

OpCost op_cost(const ScaleRowsArgs& args);
const KernelSet<ScaleRowsArgs>& scale_rows_kernels();
KernelTable<ScaleRowsArgs> scale_rows_cpu_kernels();
KernelTable<ScaleRowsArgs> scale_rows_cuda_kernels();

}  // namespace headrace
