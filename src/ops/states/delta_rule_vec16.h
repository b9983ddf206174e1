// The body of the delta_rule kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/delta_rule_head.h"
#include "ops/states/state_block_vec16.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// One row over a block of kVecs vectors a line; kWhole: all lanes are there.
template <int kVecs, bool kWhole>
void advance_row(const DeltaHead& a, const StateBlock& block, int64_t t, float k_dot_q) {
  const float* q = a.q + t * a.qkv_stride;
  const float* k = a.k + t * a.qkv_stride;
  const int64_t width = kWhole ? kVecs * 16 : block.width;
  const auto lanes = [&](int n) { return kWhole ? int64_t{16} : width - 16 * n; };
  Vec16 of_k[kVecs], of_q[kVecs];
  for (int n = 0; n < kVecs; ++n) of_k[n] = of_q[n] = zero();
  for (int64_t i = 0; i < a.key_dim; ++i) {
    const Vec16 key = broadcast(k[i]), query = broadcast(q[i]);
    for (int n = 0; n < kVecs; ++n) {
      const Vec16 s = load_up_to(block.state + i * width + 16 * n, lanes(n), 0.0f);
      of_k[n] = fma(key, s, of_k[n]);
      of_q[n] = fma(query, s, of_q[n]);
    }
  }
  const Vec16 decay = broadcast(a.decay[t * a.gate_stride]);
  const Vec16 beta = broadcast(a.beta[t * a.gate_stride]);
  Vec16 delta[kVecs];
  for (int n = 0; n < kVecs; ++n) {
    const int64_t at = block.column + 16 * n;
    const Vec16 value = load_up_to(a.v + t * a.qkv_stride + at, lanes(n), 0.0f);
    delta[n] = mul(beta, fnma(decay, of_k[n], value));
    const Vec16 out = fma(broadcast(k_dot_q), delta[n], mul(decay, of_q[n]));
    store_up_to(a.out + t * a.out_stride + at, out, lanes(n));
  }
  for (int64_t i = 0; i < a.key_dim; ++i) {
    const Vec16 key = broadcast(k[i]);
    for (int n = 0; n < kVecs; ++n) {
      float* const at = block.state + i * width + 16 * n;
      const Vec16 s = load_up_to(at, lanes(n), 0.0f);
      store_up_to(at, fma(key, delta[n], mul(decay, s)), lanes(n));
    }
  }
}

// out := out / rms(out) * norm * silu(z), or sigmoid(z)
void gate_row(const DeltaHead& a, int64_t t) {
  float* out = a.out + t * a.out_stride;
  const float* z = a.z + t * a.z_stride;
  Vec16 squares = zero();
  for (int64_t i = 0; i < a.value_dim; i += 16) {
    const Vec16 value = load_up_to(out + i, a.value_dim - i, 0.0f);
    squares = fma(value, value, squares);
  }
  const double mean = static_cast<double>(sum_of(squares)) / static_cast<double>(a.value_dim);
  const __m128d root = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(mean + a.norm_eps));
  const Vec16 scale = broadcast(static_cast<float>(1.0 / _mm_cvtsd_f64(root)));
  for (int64_t i = 0; i < a.value_dim; i += 16) {
    const int64_t left = a.value_dim - i;
    const Vec16 gate = load_up_to(z + i, left, 0.0f);
    const Vec16 above = a.sigmoid_gates ? broadcast(1.0f) : gate;
    const Vec16 gated = div(above, add(broadcast(1.0f), exp(sub(zero(), gate))));
    const Vec16 scaled =
        mul(mul(load_up_to(out + i, left, 0.0f), scale), load_up_to(a.norm + i, left, 0.0f));
    store_up_to(out + i, mul(scaled, gated), left);
  }
}

void delta_head(const DeltaHead& a) {
  constexpr int64_t kColumns = 32;  // kDeltaColumns
  advance_blocks(a, a.key_dim, a.value_dim, kColumns, [&](const StateBlock& block, int64_t t) {
    const float k_dot_q = dot(a.k + t * a.qkv_stride, a.q + t * a.qkv_stride, a.key_dim);
    advance_by_width(
        block, [&]<int kVecs, bool kWhole>() { advance_row<kVecs, kWhole>(a, block, t, k_dot_q); });
  });
  for (int64_t t = 0; t < a.rows; ++t) gate_row(a, t);
}

}  // namespace
}  // namespace headrace
