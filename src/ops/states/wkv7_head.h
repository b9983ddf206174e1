// What wkv7 hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// One head of one sequence; strides in floats.
struct Wkv7Head {
  const float *r, *w, *k, *v, *a, *g;                              // [rows, dim]
  const float *v_first, *v_gate;                                   // [rows, dim], or null
  const float *w0, *a0, *v0, *k_k, *k_a, *r_k, *norm, *norm_bias;  // [dim]
  float* state;                                                    // as Wkv7Args has it
  float* out;                                                      // [rows, dim]; may be r
  const StateAfterRow* saves;                                      // ascending
  int64_t save_count;
  int64_t r_stride, w_stride, k_stride, v_stride, a_stride, g_stride;
  int64_t v_first_stride, v_gate_stride, out_stride;
  int64_t rows;
  int64_t dim;  // at most kWkv7HeadDimMax
  float norm_eps;
  bool begins;  // with zeros in place of the state
};

void wkv7_head_avx512(const Wkv7Head& head);  // wkv7_cpu_avx512.cc
void wkv7_head_avx2(const Wkv7Head& head);    // wkv7_cpu_avx2.cc

}  // namespace headrace
