// What causal_conv hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

namespace headrace {

// A state that is copied behind row `row` of those below.
struct ConvSave {
  int64_t row;
  float* state;
};

inline constexpr int kConvChannelsMax = 512;  // a multiple of 16

// At most so many channels of one sequence. Strides in floats; `before` and `behind` may be null.
struct ConvChannels {
  const float* x;
  const float* before;
  const float* behind;
  const float* weight;  // [taps, channels]
  const float* bias;    // [channels] or null
  float* state;         // [taps - 1, channels]
  float* out;
  const ConvSave* saves;  // ascending
  int64_t save_count;
  int64_t x_stride, before_stride, behind_stride, out_stride;
  int64_t stride;  // of weights and states: channels of the whole
  int64_t rows;
  int64_t channels;
  int32_t taps;  // 2 to 4
  bool begins;   // with zeros in place of the state
  bool silu;
};

void causal_conv_channels_avx512(const ConvChannels& channels);  // causal_conv_cpu_avx512.cc
void causal_conv_channels_avx2(const ConvChannels& channels);    // causal_conv_cpu_avx2.cc

}  // namespace headrace
