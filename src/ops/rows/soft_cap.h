// The soft cap of Gemma 2's logits: x := cap * tanh(x / cap).
#pragma once

#include "ops/op.h"

namespace headrace {

struct SoftCapArgs {
  TensorView x;      // [R, V] f32, in place
  float cap = 0.0f;  // > 0
};

void soft_cap(OpContext& context, const SoftCapArgs& args);

OpCost op_cost(const SoftCapArgs& args);
const KernelSet<SoftCapArgs>& soft_cap_kernels();
KernelTable<SoftCapArgs> soft_cap_cpu_kernels();
KernelTable<SoftCapArgs> soft_cap_cuda_kernels();

}  // namespace headrace
