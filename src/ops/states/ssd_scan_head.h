// What ssd_scan hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// One head of one sequence; strides in floats.
struct SsdHead {
  const float* x;              // [rows, P]
  const float* b;              // [rows, N]
  const float* c;              // [rows, N]
  const float* dt;             // [rows], as it is used
  const float* decay;          // [rows]
  float* state;                // as SsdScanArgs has it
  float* out;                  // [rows, P]; may be x
  const StateAfterRow* saves;  // ascending
  int64_t save_count;
  int64_t xbc_stride, dt_stride, out_stride;
  int64_t rows;
  int64_t head_dim, state_dim;
  float skip;
  bool begins;  // with zeros in place of the state
};

void ssd_head_avx512(const SsdHead& head);  // ssd_scan_cpu_avx512.cc
void ssd_head_avx2(const SsdHead& head);    // ssd_scan_cpu_avx2.cc

}  // namespace headrace
