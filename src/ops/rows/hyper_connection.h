// Hyper-connections (Zhu et al., 2024): of N streams of rows S beside each other a part reads one
// row, and what it makes is added to each stream. Gates are independent (Hunyuan V4), or there is
// also a matrix C that mixes the streams, doubly stochastic but for `eps` (Xie et al., 2026;
// DeepSeek V4).
//   m             = logits / sqrt(mean(S^2) + norm_eps)      (of all columns of all streams)
//   hyper_mix     a = sigmoid(scale_0 m_j + bias_j) + eps;   x := sum_j a_j S_j
//                 gate_j := magnitude sigmoid(scale_1 m_(N+j) + bias_(N+j)) + eps, where there are
//                 such; without eps where there is a matrix
//                 C_i := softmax(scale_2 m_(2N+iN..) + bias_(2N+iN..)) + eps, a row; then `rounds`
//                 times, but for the first division by rows: each number divided by the sum of its
//                 row + eps, then by that of its column + eps (Sinkhorn and Knopp, 1967)
//   hyper_add     S_j := S_j + gate_j (x - before), of a matrix
//                 S_j := sum_i C_ij S_i + gate_j (x - before)
#pragma once

#include "ops/op.h"

namespace headrace {

inline constexpr int32_t kHyperStreamsMax = 16;

struct HyperMixArgs {
  ConstTensorView streams;  // [T, N D] f32, one beside the other
  // [T, N] f32, or [T, 2 N] where gates are made, [T, 2 N + N N] where a matrix is.
  ConstTensorView logits;
  const float* scales;  // [1], [2] or [3]
  const float* biases;  // [logits]
  float norm_eps = 0.0f;
  float eps = 0.0f;
  float magnitude = 1.0f;
  TensorView x;      // [T, D] f32; written
  TensorView gates;  // [T, N] f32; written, or no data
  TensorView mixes;  // [T, N N] f32, C; likewise. REQUIRES: gates are made
  int32_t rounds = 0;
};

struct HyperAddArgs {
  TensorView streams;          // [T, N D] f32
  ConstTensorView gates;       // [T, N] f32
  ConstTensorView x;           // [T, D] f32
  ConstTensorView before;      // likewise
  ConstTensorView mixes = {};  // [T, N N] f32, or no data
};

// Row t of the results depends on row t of the arguments alone, bit for bit. CPU.
void hyper_mix(OpContext& context, const HyperMixArgs& args);
void hyper_add(OpContext& context, const HyperAddArgs& args);

OpCost op_cost(const HyperMixArgs& args);
const KernelSet<HyperMixArgs>& hyper_mix_kernels();
KernelTable<HyperMixArgs> hyper_mix_cpu_kernels();
OpCost op_cost(const HyperAddArgs& args);
const KernelSet<HyperAddArgs>& hyper_add_kernels();
KernelTable<HyperAddArgs> hyper_add_cpu_kernels();

}  // namespace headrace
