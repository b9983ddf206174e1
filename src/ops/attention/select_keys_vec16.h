// The body of the scoring kernels of select_keys. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/attention/select_keys_scores.h"

namespace headrace {
namespace {

template <bool kHalf>
Vec16 load_component(const std::byte* keys, int64_t d) {
  if constexpr (kHalf) return load_f16(keys + d * 32);
  return load(reinterpret_cast<const float*>(keys) + d * 16);
}

// Products of so many heads with sixteen keys, one sum each, so that sums wait for none but their
// own.
template <bool kHalf, int kHeads>
void score_heads(const float* queries, const float* weights, const std::byte* keys, int64_t dim,
                 Vec16& score) {
  Vec16 sums[kHeads];
  for (Vec16& sum : sums) sum = zero();
  for (int64_t d = 0; d < dim; ++d) {
    const Vec16 key = load_component<kHalf>(keys, d);
    for (int h = 0; h < kHeads; ++h) sums[h] = fma(broadcast(queries[h * dim + d]), key, sums[h]);
  }
  for (int h = 0; h < kHeads; ++h) {
    score = fma(broadcast(weights[h]), max(sums[h], zero()), score);
  }
}

// Products of so many rows' one head with sixteen keys.
template <bool kHalf, int kRows>
void multiply_rows(const BlockScores& block, int64_t first) {
  const float* const queries = block.queries + first * block.query_stride;
  Vec16 sums[kRows];
  for (Vec16& sum : sums) sum = zero();
  for (int64_t d = 0; d < block.dim; ++d) {
    const Vec16 key = load_component<kHalf>(block.keys, d);
    for (int r = 0; r < kRows; ++r) {
      sums[r] = fma(broadcast(queries[r * block.query_stride + d]), key, sums[r]);
    }
  }
  for (int r = 0; r < kRows; ++r) store(block.scores + (first + r) * block.score_stride, sums[r]);
}

template <bool kHalf>
void multiply_all(const BlockScores& block) {
  constexpr int kTogether = 4;
  int64_t r = 0;
  for (; r + kTogether <= block.rows; r += kTogether) multiply_rows<kHalf, kTogether>(block, r);
  for (; r < block.rows; ++r) multiply_rows<kHalf, 1>(block, r);
}

template <bool kHalf>
void score_rows(const BlockScores& block) {
  constexpr int kTogether = 4;
  if (block.weights == nullptr) return multiply_all<kHalf>(block);
  for (int64_t r = 0; r < block.rows; ++r) {
    const float* const queries = block.queries + r * block.query_stride;
    const float* const weights = block.weights + r * block.weight_stride;
    Vec16 score = zero();
    int32_t h = 0;
    for (; h + kTogether <= block.heads; h += kTogether) {
      score_heads<kHalf, kTogether>(queries + int64_t{h} * block.dim, weights + h, block.keys,
                                    block.dim, score);
    }
    for (; h < block.heads; ++h) {
      score_heads<kHalf, 1>(queries + int64_t{h} * block.dim, weights + h, block.keys, block.dim,
                            score);
    }
    store(block.scores + r * block.score_stride, score);
  }
}

void score_block(const BlockScores& block) {
  block.half ? score_rows<true>(block) : score_rows<false>(block);
}

}  // namespace
}  // namespace headrace
