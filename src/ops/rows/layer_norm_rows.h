// What layer_norm hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

namespace headrace {

// `rows` rows of f32; strides in floats.
struct LayerNormRows {
  float* x;               // [rows, columns]
  const float* residual;  // [rows, columns] or null
  const float* weight;    // [columns]
  const float* bias;      // [columns]
  float* out;             // [rows, columns]
  int64_t x_stride;
  int64_t residual_stride;
  int64_t out_stride;
  int64_t rows;
  int64_t columns;
  float eps;
  float residual_scale;
};

void layer_norm_rows_avx512(const LayerNormRows& rows);  // layer_norm_cpu_avx512.cc
void layer_norm_rows_avx2(const LayerNormRows& rows);    // layer_norm_cpu_avx2.cc

}  // namespace headrace
