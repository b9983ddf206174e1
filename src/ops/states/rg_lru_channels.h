// What rg_lru hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// Channels of one sequence; strides in floats.
struct LruChannels {
  const float *x, *in, *forget, *gate;        // [rows, channels]
  const float *in_bias, *forget_bias, *rate;  // [channels]
  float* state;                               // [channels]
  float* out;                                 // [rows, channels]; may be one of the first
  const StateAfterRow* saves;                 // ascending
  int64_t save_count;
  int64_t x_stride, in_stride, forget_stride, gate_stride, out_stride;
  int64_t rows;
  int64_t channels;
  bool begins;  // the first row is a text's
};

void lru_channels_avx512(const LruChannels& channels);  // rg_lru_cpu_avx512.cc
void lru_channels_avx2(const LruChannels& channels);    // rg_lru_cpu_avx2.cc

}  // namespace headrace
