// Plain data of the scoring kernels of select_keys: kernels of one instruction set include this.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

inline constexpr int32_t kScoredKeys = 16;  // of a block, scored together
inline constexpr int32_t kScoredRows = 8;   // of a sequence, scored against a block in one go

struct BlockScores {
  const float* queries;   // [rows, heads * dim]
  const float* weights;   // [rows, heads]
  const std::byte* keys;  // [dim][16], f32 or f16
  float* scores;          // [rows][16]
  int64_t query_stride, weight_stride, score_stride;
  int32_t rows, heads, dim;
  bool half;  // keys are f16
};

void score_block_avx2(const BlockScores& block);
void score_block_avx512(const BlockScores& block);

}  // namespace headrace
