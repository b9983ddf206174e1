// What lora_linear hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// Some rows of x by some rows of A: t[i * t_stride + r] = scale * (x[rows[i]] . a[r]).
struct LoraShrink {
  const float* x;       // row 0 is what `rows` calls first_row
  int64_t x_stride;     // floats
  const int32_t* rows;  // [row_count]
  int64_t row_count;
  int32_t first_row;
  const std::byte* a;  // [ranks, columns]
  int64_t a_stride;    // bytes
  bool half;           // F16; else F32
  int64_t ranks;
  int64_t columns;
  float scale;
  float* t;
  int64_t t_stride;
};

// y[rows[i]][n] += sum over r of t[i * t_stride + r] * B[n][r].
struct LoraExpand {
  const float* t;
  int64_t t_stride;
  const std::byte* b;  // panels of columns
  int64_t b_stride;    // bytes
  bool half;
  int64_t ranks;
  int64_t columns;
  float* y;  // row 0 is what `rows` calls first_row
  int64_t y_stride;
  const int32_t* rows;
  int64_t row_count;
  int32_t first_row;
};

struct LoraRowKernels {
  void (*shrink)(const LoraShrink&);
  void (*expand)(const LoraExpand&);
};
extern const LoraRowKernels kLoraAvx512;  // lora_linear_cpu_avx512.cc
extern const LoraRowKernels kLoraAvx2;    // lora_linear_cpu_avx2.cc

}  // namespace headrace
