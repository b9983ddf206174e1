// What kimi_delta hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// One head of one sequence; strides in floats.
struct KimiDeltaHead {
  const float* q;  // [rows, d], normalised, as k
  const float* k;
  const float* v;
  const float* decay;          // [rows, d]
  const float* beta;           // [rows] of the head
  const float* z;              // [rows, d]
  const float* norm;           // [d]
  float* state;                // as KimiDeltaArgs has it
  float* out;                  // [rows, d]
  const StateAfterRow* saves;  // ascending
  int64_t save_count;
  int64_t qkv_stride, decay_stride, beta_stride, z_stride, out_stride;
  int64_t rows;
  int64_t dim;
  float norm_eps;
  bool begins;  // with zeros in place of the state
};

void kimi_delta_head_avx512(const KimiDeltaHead& head);  // kimi_delta_cpu_avx512.cc
void kimi_delta_head_avx2(const KimiDeltaHead& head);    // kimi_delta_cpu_avx2.cc

}  // namespace headrace
