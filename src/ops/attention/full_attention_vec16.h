// The body of the full_attention kernels. Included after vec16_avx512.h or vec16_avx2.h.
//
// Keys are copied to columns, so that 16 of them are the lanes of a vector and no sum crosses
// lanes. A tile of rows takes all its scores, one exact softmax a row, then the values.
#pragma once

#include "ops/attention/full_attention_head.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

struct FullScratch {
  float* keys;    // [d][columns]
  float* values;  // [n][padded_dim]
  float* scores;  // [kFullAttentionTile][columns]
  int64_t columns;
  int64_t padded_dim;
};

int64_t round_up_16(int64_t count) { return (count + 15) / 16 * 16; }

FullScratch lay_out(const FullAttentionHead& head) {
  const int64_t columns = round_up_16(head.rows), dim = round_up_16(head.head_dim);
  float* const keys = head.scratch;
  float* const values = keys + columns * dim;
  return {keys, values, values + columns * dim, columns, dim};
}

void stage_keys_and_values(const FullAttentionHead& head, const FullScratch& scratch) {
  for (int64_t j = 0; j < scratch.columns; ++j) {
    const bool there = j < head.rows;
    for (int64_t d = 0; d < head.head_dim; ++d) {
      scratch.keys[d * scratch.columns + j] = there ? head.k[j * head.stride + d] : 0.0f;
    }
    for (int64_t d = 0; there && d < scratch.padded_dim; d += 16) {
      const int64_t left = head.head_dim - d;
      store(scratch.values + j * scratch.padded_dim + d,
            load_up_to(head.v + j * head.stride + d, left, 0.0f));
    }
  }
}

// The keys that rows [row, row + count) see, from a multiple of 16 on.
struct KeyRange {
  int64_t first, last;
};

KeyRange keys_of(const FullAttentionHead& head, int64_t row, int64_t count) {
  const int64_t rows = head.rows;
  if (head.window == 0) return {0, rows};
  const int64_t first = row - head.window, last = row + count + head.window;
  return {first > 0 ? first / 16 * 16 : 0, last < rows ? last : rows};
}

int lane_of(int64_t key) { return key < 0 ? 0 : key > 16 ? 16 : static_cast<int>(key); }

// Scores of kRows rows from `row` on.
template <int kRows>
void score_tile(const FullAttentionHead& head, const FullScratch& scratch, int64_t row,
                const KeyRange& range) {
  for (int64_t j = range.first; j < range.last; j += 16) {
    Vec16 sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = zero();
    for (int64_t d = 0; d < head.head_dim; ++d) {
      const Vec16 keys = load(scratch.keys + d * scratch.columns + j);
      for (int r = 0; r < kRows; ++r) {
        sums[r] = fma(broadcast(head.q[(row + r) * head.stride + d]), keys, sums[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      Vec16 score = mul(sums[r], broadcast(head.scale));
      const int64_t left = head.rows - j;
      if (head.bias != nullptr) {
        score = add(score, load_up_to(head.bias + j - (row + r), left, 0.0f));
      }
      int first = 0, last = lane_of(left);
      if (head.window > 0) {
        const int behind = lane_of(row + r + head.window + 1 - j);
        first = lane_of(row + r - head.window - j);
        if (behind < last) last = behind;
      }
      store(scratch.scores + r * scratch.columns + j,
            keep_lanes(score, first, last, -__builtin_inff()));
    }
  }
}

// Scores become exp(score - largest); returns one over their sum.
float soften(float* scores, const KeyRange& range) {
  Vec16 largest = broadcast(-__builtin_inff());
  for (int64_t j = range.first; j < range.last; j += 16) largest = max(largest, load(scores + j));
  const Vec16 top = broadcast(largest_of(largest));
  Vec16 total = zero();
  for (int64_t j = range.first; j < range.last; j += 16) {
    const Vec16 weight = exp_of_negative(sub(load(scores + j), top));
    store(scores + j, weight);
    total = add(total, weight);
  }
  return 1.0f / sum_of(total);
}

template <int kRows>
void add_values_of_tile(const FullAttentionHead& head, const FullScratch& scratch, int64_t row,
                        const KeyRange& range, const float* factors) {
  for (int64_t d = 0; d < head.head_dim; d += 16) {
    Vec16 sums[kRows];
    for (int r = 0; r < kRows; ++r) sums[r] = zero();
    for (int64_t j = range.first; j < range.last; ++j) {
      const Vec16 value = load(scratch.values + j * scratch.padded_dim + d);
      for (int r = 0; r < kRows; ++r) {
        sums[r] = fma(broadcast(scratch.scores[r * scratch.columns + j]), value, sums[r]);
      }
    }
    for (int r = 0; r < kRows; ++r) {
      store_up_to(head.out + (row + r) * head.out_stride + d, mul(sums[r], broadcast(factors[r])),
                  head.head_dim - d);
    }
  }
}

template <int kRows>
void attend_tile(const FullAttentionHead& head, const FullScratch& scratch, int64_t row) {
  const KeyRange range = keys_of(head, row, kRows);
  score_tile<kRows>(head, scratch, row, range);
  float factors[kRows];
  for (int r = 0; r < kRows; ++r) {
    factors[r] = soften(scratch.scores + r * scratch.columns, range);
  }
  add_values_of_tile<kRows>(head, scratch, row, range, factors);
}

void attend_full(const FullAttentionHead& head) {
  const FullScratch scratch = lay_out(head);
  stage_keys_and_values(head, scratch);
  int64_t row = 0;
  for (; row + kFullAttentionTile <= head.rows; row += kFullAttentionTile) {
    attend_tile<kFullAttentionTile>(head, scratch, row);
  }
  for (; row < head.rows; ++row) attend_tile<1>(head, scratch, row);
}

}  // namespace
}  // namespace headrace
