// The body of the rg_lru kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/rg_lru_channels.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

Vec16 lru_sigmoid(Vec16 x) {
  return div(broadcast(1.0f), add(broadcast(1.0f), exp(sub(zero(), x))));
}

// Sixteen channels over all rows.
void lru_lanes(const LruChannels& a, int64_t c) {
  const int64_t left = a.channels - c;
  const auto at = [&](const float* from) { return load_up_to(from + c, left, 0.0f); };
  const Vec16 in_bias = at(a.in_bias), forget_bias = at(a.forget_bias), rate = at(a.rate);
  Vec16 h = a.begins ? zero() : at(a.state);
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    const Vec16 in = lru_sigmoid(add(at(a.in + t * a.in_stride), in_bias));
    const Vec16 taken = mul(at(a.x + t * a.x_stride), in);
    if (t == 0 && a.begins) {
      h = taken;
    } else {
      const Vec16 forget = lru_sigmoid(add(at(a.forget + t * a.forget_stride), forget_bias));
      const Vec16 log_a = mul(rate, forget);
      const Vec16 rest = sub(broadcast(1.0f), exp(add(log_a, log_a)));
      h = fma(exp(log_a), h, mul(taken, square_root(rest)));
    }
    store_up_to(a.out + t * a.out_stride + c, mul(h, at(a.gate + t * a.gate_stride)), left);
    while (saved < a.save_count && a.saves[saved].row == t) {
      store_up_to(a.saves[saved++].state + c, h, left);
    }
  }
  store_up_to(a.state + c, h, left);
}

void lru_channels(const LruChannels& a) {
  for (int64_t c = 0; c < a.channels; c += 16) lru_lanes(a, c);
}

}  // namespace
}  // namespace headrace
