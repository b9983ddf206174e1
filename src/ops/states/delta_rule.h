// The gated delta rule (Yang et al., 2024; Qwen3-Next): linear attention whose state, a matrix of
// each value head, forgets by a factor a row and replaces what it has under the row's key:
//   q, k     := q / |q| / sqrt(dk), k / |k| (of each key head; |x| = sqrt(sum x^2 + 1e-6))
//   decay_t   = exp(rate softplus(a_t + dt_bias))                        (of each value head)
//   beta_t    = beta_scale sigmoid(b_t)                                  (of each value head)
//   S        := decay_t S;   S := S + k_t (beta_t (v_t - S' k_t))';   o_t = S' q_t
//   out_t     = o_t / sqrt(mean(o_t^2) + eps) * norm * silu(z_t), or sigmoid(z_t)
// A key head serves value heads that are neighbours, or, `tiled`, every key_heads-th.
//
// A row's sums are over dk in ascending order, whatever the instruction set: as the state is read
// once for both, o_t is decay_t (S' q_t) + (k_t q_t) delta_t of the state before the row.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct DeltaHeads {
  int32_t key_heads = 0;
  int32_t value_heads = 0;  // a multiple of key_heads
  int32_t key_dim = 0;      // dk
  int32_t value_dim = 0;    // dv
  bool tiled = false;       // value head h has key head h % key_heads, not one of its neighbours'

  int64_t keys() const { return int64_t{key_heads} * key_dim; }
  int64_t values() const { return int64_t{value_heads} * value_dim; }
  int64_t qkv() const { return 2 * keys() + values(); }
  int64_t state_bytes() const {
    return int64_t{value_heads} * key_dim * value_dim * static_cast<int64_t>(sizeof(float));
  }
  friend bool operator==(const DeltaHeads&, const DeltaHeads&) = default;
};

struct DeltaRuleArgs {
  DeltaHeads heads;
  // [T, heads.qkv()] of the activation type: q, k, v. A CPU leaves q and k normalised.
  TensorView qkv;
  TensorView gates;      // [T, 2 value_heads] f32: b, a; a CPU leaves beta, decay
  ConstTensorView z;     // [T, heads.values()] of qkv's type
  const float* rate;     // [value_heads], negative
  const float* dt_bias;  // [value_heads]
  const float* norm;     // [dv]
  float norm_eps = 0.0f;
  bool sigmoid_gates = false;
  float beta_scale = 1.0f;  // 2: a row may turn over what the state has under its key
  // f32, by value head, in blocks of kDeltaColumns columns of dv (the last may be narrower):
  // [dk, columns], dense.
  StateView states;
  // [T, heads.values()] of qkv's type; may be v. A CPU does not write rows of no sequence.
  TensorView out;
};

inline constexpr int64_t kDeltaColumns = 32;

void delta_rule(OpContext& context, const DeltaRuleArgs& args);

OpCost op_cost(const DeltaRuleArgs& args);
const KernelSet<DeltaRuleArgs>& delta_rule_kernels();
KernelTable<DeltaRuleArgs> delta_rule_cpu_kernels();
KernelTable<DeltaRuleArgs> delta_rule_cuda_kernels();

}  // namespace headrace
