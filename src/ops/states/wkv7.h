// RWKV-7's linear attention (Peng et al., 2025): each head has a state S that forgets by a factor
// of each key component, takes out what it has under a key, and takes in the row's value under
// another:
//   w     = exp(-exp(-1/2) sigmoid(w0 + w_t)), a = sigmoid(a0 + a_t)
//   v     = v_t + (v_first_t - v_t) sigmoid(v0 + v_gate_t)   (where there is a v_first)
//   kk    = k_t k_k, divided by its length (of each head), k = k_t (1 + (a - 1) k_a)
//   S    := diag(w) S + (kk a) (-kk' S) + k v';   y_t = r_t' S   (S [key, value])
//   out_t = (norm(y_t) + (sum of r_t k r_k) v) g_t
// where norm is a LayerNorm of each head, with a weight and a bias of each channel.
//
// On a CPU a row's sums over keys are in ascending order, whatever the instruction set. A GPU takes
// heads of at most 128.
#pragma once

#include "ops/op.h"
#include "ops/states/state_view.h"

namespace headrace {

struct Wkv7Heads {
  int32_t heads = 0;
  int32_t head_dim = 0;  // of keys and of values

  int64_t channels() const { return int64_t{heads} * head_dim; }
  int64_t state_bytes() const {
    return channels() * head_dim * static_cast<int64_t>(sizeof(float));
  }
  friend bool operator==(const Wkv7Heads&, const Wkv7Heads&) = default;
};

struct Wkv7Args {
  Wkv7Heads heads;
  // [T, heads.channels()] each, as they come out of the products, of the activation type; w and a
  // f32.
  ConstTensorView r, w, k, v, a, g;
  // The first layer's v and the gate between them, of v's type; no data: this is the first.
  ConstTensorView v_first, v_gate;
  const float *w0, *a0, *v0;      // [channels]; v0 null in the first layer
  const float *k_k, *k_a, *r_k;   // [channels]
  const float *norm, *norm_bias;  // [channels]
  float norm_eps = 0.0f;
  // f32, by head, in blocks of kWkv7Columns of its values (the last may be narrower): [keys,
  // columns], dense.
  StateView states;
  TensorView out;  // [T, channels] of r's type; may be r. Rows of no sequence are not written
};

inline constexpr int64_t kWkv7Columns = 32;
inline constexpr int64_t kWkv7HeadDimMax = 256;

void wkv7(OpContext& context, const Wkv7Args& args);

OpCost op_cost(const Wkv7Args& args);
const KernelSet<Wkv7Args>& wkv7_kernels();
KernelTable<Wkv7Args> wkv7_cpu_kernels();
KernelTable<Wkv7Args> wkv7_cuda_kernels();

}  // namespace headrace
