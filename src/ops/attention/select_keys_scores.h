// Plain data of the scoring kernels of select_keys and select_blocks (kernels of one instruction
// set include this), and how the scores of a GPU lie in the workspace.
#pragma once

#include <cstddef>
#include <cstdint>

namespace headrace {

inline constexpr int32_t kScoredKeys = 16;  // of a block, scored together
inline constexpr int32_t kScoredRows = 8;   // of a sequence, scored against a block in one go

struct BlockScores {
  const float* queries;   // [rows, heads * dim]
  const float* weights;   // [rows, heads]; null: a score is the product itself, of one head
  const std::byte* keys;  // [dim][16], f32 or f16
  float* scores;          // [rows][16]
  int64_t query_stride, weight_stride, score_stride;
  int32_t rows, heads, dim;
  bool half;  // keys are f16
};

// On CUDA scores [rows, scored_stride()] f32 of so many rows at a time lie in the workspace; a
// row's begin on 16 bytes.
inline constexpr int64_t kScoreBytes = int64_t{128} << 20;
inline constexpr int64_t kScoreTileKeys = 256;
constexpr int64_t scored_stride(int32_t kv_length_max) {
  return (kv_length_max + kScoreTileKeys - 1) / kScoreTileKeys * kScoreTileKeys;
}
constexpr int64_t scored_rows_max(int32_t kv_length_max) {
  constexpr int64_t kFewest = 16, kMost = 32768;  // thread blocks in a row of a grid
  const int64_t rows = kScoreBytes / (scored_stride(kv_length_max) * 4) / kFewest * kFewest;
  return rows < kFewest ? kFewest : rows > kMost ? kMost : rows;
}

void score_block_reference(const BlockScores& block);
void score_block_avx2(const BlockScores& block);
void score_block_avx512(const BlockScores& block);

}  // namespace headrace
