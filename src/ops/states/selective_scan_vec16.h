// The body of the selective_scan kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/selective_scan_channels.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// One row over the 16 lanes, or those that are there, from channel `at` on.
inline void advance_lanes(const ScanChannels& a, int64_t t, int64_t at) {
  const int64_t left = a.channels - at;
  const Vec16 x = load_up_to(a.x + t * a.x_stride + at, left, 0.0f);
  const Vec16 raw = load_up_to(a.dt + t * a.dt_stride + at, left, 0.0f);
  const Vec16 dt = softplus(add(raw, load_up_to(a.dt_bias + at, left, 0.0f)));
  const Vec16 taken = mul(dt, x);
  Vec16 sum = zero();
  for (int64_t n = 0; n < a.state_dim; ++n) {
    float* const state = a.state + n * a.channels + at;
    const Vec16 rate = load_up_to(a.rate + n * a.rate_stride + at, left, 0.0f);
    const Vec16 decayed = mul(exp_of_negative(mul(rate, dt)), load_up_to(state, left, 0.0f));
    const Vec16 s = fma(broadcast(a.b[t * a.b_stride + n]), taken, decayed);
    store_up_to(state, s, left);
    sum = fma(broadcast(a.c[t * a.c_stride + n]), s, sum);
  }
  const Vec16 y = fma(load_up_to(a.skip + at, left, 0.0f), x, sum);
  const Vec16 gate = load_up_to(a.z + t * a.z_stride + at, left, 0.0f);
  const Vec16 silu = div(gate, add(broadcast(1.0f), exp(sub(zero(), gate))));
  store_up_to(a.out + t * a.out_stride + at, mul(y, silu), left);
}

inline void copy_floats(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    store_up_to(to + i, load_up_to(from + i, count - i, 0.0f), count - i);
  }
}

void scan_channels(const ScanChannels& a) {
  const int64_t numbers = a.state_dim * a.channels;
  if (a.begins) {
    for (int64_t i = 0; i < numbers; i += 16) store_up_to(a.state + i, zero(), numbers - i);
  }
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t at = 0; at < a.channels; at += 16) advance_lanes(a, t, at);
    while (saved < a.save_count && a.saves[saved].row == t) {
      copy_floats(a.state, a.saves[saved++].state, numbers);
    }
  }
}

}  // namespace
}  // namespace headrace
