// What full_attention hands to the kernels for one instruction set: plain data, no inline
// functions.
#pragma once

#include <cstdint>

namespace headrace {

// One head of one sequence of n rows.
struct FullAttentionHead {
  const float* q;  // [n, d] at `stride`
  const float* k;
  const float* v;
  float* out;      // [n, d] at out_stride
  int64_t stride;  // floats
  int64_t out_stride;
  int32_t rows;  // n
  int32_t head_dim;
  float scale;
  const float* bias;  // of distance 0, or null
  int32_t window;     // row i sees rows i - window to i + window; 0: all
  float* scratch;     // full_attention_scratch_floats(), 64-byte aligned
};

inline constexpr int32_t kFullAttentionTile = 6;  // rows that share what is loaded

// Keys as columns, [d][n], values, [n][d], both padded to 16, and the scores of a tile.
int64_t full_attention_scratch_floats(int32_t head_dim, int32_t rows);  // full_attention.cc

void attend_full_avx512(const FullAttentionHead& head);  // full_attention_cpu_avx512.cc
void attend_full_avx2(const FullAttentionHead& head);    // full_attention_cpu_avx2.cc

}  // namespace headrace
