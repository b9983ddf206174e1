// The soft cap of Gemma 2's logits: x := cap * tanh(x / cap); or a hard one, of DBRX's queries,
// keys and values: x := min(max(x, -cap), cap); or one from above alone, of gates: x := min(x,
// cap).
#pragma once

#include "ops/op.h"

namespace headrace {

enum class CapKind : uint8_t { kSoft, kClamp, kAtMost };

struct SoftCapArgs {
  TensorView x;      // [R, V] f32 or of the activation type, in place
  float cap = 0.0f;  // > 0
  CapKind kind = CapKind::kSoft;
};

void soft_cap(OpContext& context, const SoftCapArgs& args);

OpCost op_cost(const SoftCapArgs& args);
const KernelSet<SoftCapArgs>& soft_cap_kernels();
KernelTable<SoftCapArgs> soft_cap_cpu_kernels();
KernelTable<SoftCapArgs> soft_cap_cuda_kernels();

}  // namespace headrace
