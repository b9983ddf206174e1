// The body of the causal_conv kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/causal_conv_channels.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Sixteen channels, of which `left` are there, over all rows: what rows have in common stays in
// registers.
template <int kTaps>
void convolve_lanes(const ConvChannels& a, int64_t c, int64_t left) {
  Vec16 weight[kTaps];
  for (int j = 0; j < kTaps; ++j) weight[j] = load_up_to(a.weight + j * a.stride + c, left, 0.0f);
  const Vec16 bias = a.bias == nullptr ? zero() : load_up_to(a.bias + c, left, 0.0f);
  Vec16 seen[kTaps];  // the last is the row's own
  for (int j = 0; j < kTaps - 1; ++j) {
    seen[j] = a.begins ? zero() : load_up_to(a.state + j * a.stride + c, left, 0.0f);
  }
  const auto keep = [&](float* state) {
    for (int j = 0; j < kTaps - 1; ++j) store_up_to(state + j * a.stride + c, seen[j], left);
  };
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    Vec16 value = load_up_to(a.x + t * a.x_stride + c, left, 0.0f);
    if (a.before != nullptr) {
      value = mul(value, load_up_to(a.before + t * a.before_stride + c, left, 0.0f));
    }
    seen[kTaps - 1] = value;
    Vec16 sum = bias;
    for (int j = 0; j < kTaps; ++j) sum = fma(weight[j], seen[j], sum);
    for (int j = 0; j < kTaps - 1; ++j) seen[j] = seen[j + 1];
    if (a.silu) sum = div(sum, add(broadcast(1.0f), exp(sub(zero(), sum))));
    if (a.behind != nullptr) {
      sum = mul(sum, load_up_to(a.behind + t * a.behind_stride + c, left, 0.0f));
    }
    store_up_to(a.out + t * a.out_stride + c, sum, left);
    while (saved < a.save_count && a.saves[saved].row == t) keep(a.saves[saved++].state);
  }
  keep(a.state);
}

void causal_conv_channels(const ConvChannels& a) {
  for (int64_t c = 0; c < a.channels; c += 16) {
    const int64_t left = a.channels - c;
    if (a.taps == 2) convolve_lanes<2>(a, c, left);
    if (a.taps == 3) convolve_lanes<3>(a, c, left);
    if (a.taps == 4) convolve_lanes<4>(a, c, left);
  }
}

}  // namespace
}  // namespace headrace
