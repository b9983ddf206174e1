// cut_gates: of a row's gates those above its mean + cutoff * deviation stay, less that; the others
// are 0 (Gemma 3n).
#pragma once

#include "ops/op.h"

namespace headrace {

struct CutGatesArgs {
  TensorView x;  // [T, F] of the model's activation type, in place; may be columns of more
  float cutoff = 0.0f;
};

// The deviation is that of all F, not of F - 1. Row t of the results depends on row t alone, bit
// for bit.
void cut_gates(OpContext& context, const CutGatesArgs& args);

OpCost op_cost(const CutGatesArgs& args);
const KernelSet<CutGatesArgs>& cut_gates_kernels();
KernelTable<CutGatesArgs> cut_gates_cpu_kernels();
KernelTable<CutGatesArgs> cut_gates_cuda_kernels();

}  // namespace headrace
