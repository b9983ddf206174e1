// The body of the causal_conv kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/causal_conv_channels.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Row by row, as they lie: rows are tens of KiB apart, so that channel by channel each line of the
// cache would be waited for. What later rows need is in a ring, row t's values in line t % kTaps.
template <int kTaps>
void convolve_rows(const ConvChannels& a) {
  alignas(64) float ring[kTaps][kConvChannelsMax];
  const auto line = [&](int64_t t) { return ring[(t + kTaps) % kTaps]; };
  const auto keep = [&](float* state, int64_t t) {
    for (int j = 0; j < kTaps - 1; ++j) {
      for (int64_t c = 0; c < a.channels; c += 16) {
        store_up_to(state + j * a.stride + c, load(line(t - kTaps + 2 + j) + c), a.channels - c);
      }
    }
  };
  for (int j = 0; j < kTaps - 1; ++j) {
    for (int64_t c = 0; c < a.channels; c += 16) {
      const float* state = a.state + j * a.stride + c;
      store(line(j - kTaps + 1) + c, a.begins ? zero() : load_up_to(state, a.channels - c, 0.0f));
    }
  }
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    for (int64_t c = 0; c < a.channels; c += 16) {
      const int64_t left = a.channels - c;
      Vec16 value = load_up_to(a.x + t * a.x_stride + c, left, 0.0f);
      if (a.before != nullptr) {
        value = mul(value, load_up_to(a.before + t * a.before_stride + c, left, 0.0f));
      }
      store(line(t) + c, value);
      Vec16 sum = a.bias == nullptr ? zero() : load_up_to(a.bias + c, left, 0.0f);
      for (int j = 0; j < kTaps; ++j) {
        const Vec16 weight = load_up_to(a.weight + j * a.stride + c, left, 0.0f);
        sum = fma(weight, load(line(t - kTaps + 1 + j) + c), sum);
      }
      if (a.silu) sum = div(sum, add(broadcast(1.0f), exp(sub(zero(), sum))));
      if (a.behind != nullptr) {
        sum = mul(sum, load_up_to(a.behind + t * a.behind_stride + c, left, 0.0f));
      }
      store_up_to(a.out + t * a.out_stride + c, sum, left);
    }
    while (saved < a.save_count && a.saves[saved].row == t) keep(a.saves[saved++].state, t);
  }
  keep(a.state, a.rows - 1);
}

void causal_conv_channels(const ConvChannels& a) {
  if (a.taps == 2) convolve_rows<2>(a);
  if (a.taps == 3) convolve_rows<3>(a);
  if (a.taps == 4) convolve_rows<4>(a);
}

}  // namespace
}  // namespace headrace
