// The gate of a selective scan, and the RMSNorm that goes with it, over groups of columns
// (Mamba-2, Dao and Gu, 2024): with y = x or x * silu(gate), and n = y / sqrt(mean(y^2) + eps) of
// each group,
//   kNone        x := x * silu(gate) * weight
//   kBehindGate  x := n(x * silu(gate)) * weight
//   kBeforeGate  x := n(x) * weight * silu(gate)
#pragma once

#include "ops/op.h"

namespace headrace {

enum class GatedNorm : uint8_t { kNone, kBehindGate, kBeforeGate };

struct GatedNormArgs {
  TensorView x;          // [T, C], of the activation type
  ConstTensorView gate;  // [T, C] of x's type
  const float* weight;   // [C]
  GatedNorm norm = GatedNorm::kBehindGate;
  int64_t group = 0;  // columns of a group; divides C
  float eps = 0.0f;
  float gate_scale = 1.0f;  // of the gate, before its SiLU
};

void gated_norm(OpContext& context, const GatedNormArgs& args);

OpCost op_cost(const GatedNormArgs& args);
const KernelSet<GatedNormArgs>& gated_norm_kernels();
KernelTable<GatedNormArgs> gated_norm_cpu_kernels();
KernelTable<GatedNormArgs> gated_norm_cuda_kernels();

}  // namespace headrace
