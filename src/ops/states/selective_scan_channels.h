// What selective_scan hands to the kernels for one instruction set: plain data, no inline
// functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// At most 32 channels (kScanColumns) of one sequence; strides in floats.
struct ScanChannels {
  const float* x;              // [rows, channels]
  const float* z;              // [rows, channels]
  const float* dt;             // [rows, channels]
  const float* b;              // [rows, N]
  const float* c;              // [rows, N]
  const float* rate;           // [N, channels]
  const float* dt_bias;        // [channels]
  const float* skip;           // [channels]
  float* state;                // [N, channels], dense
  float* out;                  // [rows, channels]; may be x
  const StateAfterRow* saves;  // ascending
  int64_t save_count;
  int64_t x_stride, z_stride, dt_stride, b_stride, c_stride, rate_stride, out_stride;
  int64_t rows;
  int64_t channels;
  int64_t state_dim;
  bool begins;  // with zeros in place of the state
};

void scan_channels_avx512(const ScanChannels& channels);  // selective_scan_cpu_avx512.cc
void scan_channels_avx2(const ScanChannels& channels);    // selective_scan_cpu_avx2.cc

}  // namespace headrace
