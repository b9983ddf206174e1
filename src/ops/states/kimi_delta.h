// Kimi Delta Attention (Kimi Team, 2025): the gated delta rule whose state forgets by a factor of
// each component of a key, and gates that are sigmoids:
//   q, k     := q / |q| / sqrt(d), k / |k| (of each head; |x| = sqrt(sum x^2 + 1e-6))
//   decay_t   = exp(rate softplus(f_t + dt_bias)) (of each component), beta_t = sigmoid(b_t)
//             or, of a floor, exp(floor sigmoid(-rate (f_t + dt_bias))), which is over exp(floor)
//   S        := diag(decay_t) S;   S := S + k_t (beta_t (v_t - S' k_t))';   o_t = S' q_t
//   out_t     = o_t / sqrt(mean(o_t^2) + eps) * norm * sigmoid(z_t)
//
// A row's sums are over d in ascending order, whatever the instruction set: as the state is read
// once for both, o_t is S' (decay_t q_t) + (k_t q_t) delta_t of the state before the row.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct KimiDeltaHeads {
  int32_t count = 0;
  int32_t dim = 0;  // d, of keys and of values

  int64_t columns() const { return int64_t{count} * dim; }
  int64_t state_bytes() const { return columns() * dim * static_cast<int64_t>(sizeof(float)); }
  friend bool operator==(const KimiDeltaHeads&, const KimiDeltaHeads&) = default;
};

struct KimiDeltaArgs {
  KimiDeltaHeads heads;
  // [T, 3 columns] of the activation type: q, k, v. A CPU leaves q and k normalised.
  TensorView qkv;
  TensorView forget;     // [T, columns] f32: f; a CPU leaves decay
  TensorView beta;       // [T, count] f32: b; a CPU leaves beta
  ConstTensorView z;     // [T, columns] of qkv's type
  const float* rate;     // [count], negative
  const float* dt_bias;  // [columns]
  const float* norm;     // [d]
  float norm_eps = 0.0f;
  float decay_floor = 0.0f;  // negative, or 0: there is none
  // f32, by head, in blocks of kKimiDeltaColumns columns of values (the last may be narrower):
  // [d, columns], dense.
  StateView states;
  // [T, columns] of qkv's type; may be v. A CPU does not write rows of no sequence.
  TensorView out;
};

inline constexpr int64_t kKimiDeltaColumns = 32;

void kimi_delta(OpContext& context, const KimiDeltaArgs& args);

OpCost op_cost(const KimiDeltaArgs& args);
const KernelSet<KimiDeltaArgs>& kimi_delta_kernels();
KernelTable<KimiDeltaArgs> kimi_delta_cpu_kernels();
KernelTable<KimiDeltaArgs> kimi_delta_cuda_kernels();

}  // namespace headrace
