// Attention in three passes over a stored matrix of scores, the baseline of tiled attention. Plain
// data, no inline code (one file is compiled for AVX-512).
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

// One head of one sequence.
struct MaterialisedHead {
  const float* q;  // [rows][q_stride], head_dim of them
  int64_t q_stride;
  float* out;  // [rows][out_stride]
  int64_t out_stride;
  float* scores;                // [rows][scores_stride], then probabilities
  int64_t scores_stride;        // kv_length, rounded up to 16
  const unsigned char* keys;    // this head in the K part of block 0: [d][16 tokens]
  const unsigned char* values;  // this head in the V part of block 0: [16 tokens][d]
  int64_t block_stride;         // bytes
  const int32_t* block_table;
  int32_t element;   // 0 f32, 1 f16, 2 bf16
  int32_t head_dim;  // a multiple of 16
  int32_t row_count, kv_length, window;
  float scale;
};

// Rows [first, last) of each pass.
void materialised_scores(const MaterialisedHead& head, int32_t row_first, int32_t row_last);
void materialised_softmax(const MaterialisedHead& head, int32_t row_first, int32_t row_last);
void materialised_values(const MaterialisedHead& head, int32_t row_first, int32_t row_last);

}  // namespace headrace
