// What gated_norm hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

namespace headrace {

// A group of a row.
struct GatedNormRow {
  float* x;           // [columns]
  const float* gate;  // [columns]
  const float* weight;
  int64_t columns;
  float eps;
  float gate_scale;
  bool normalises;
  bool gate_first;  // what is normalised is gated
};

void gated_norm_row_avx512(const GatedNormRow& row);  // gated_norm_cpu_avx512.cc
void gated_norm_row_avx2(const GatedNormRow& row);    // gated_norm_cpu_avx2.cc

}  // namespace headrace
