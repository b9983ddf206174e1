// The body of the attention kernels. Included after vec16_avx512.h or vec16_avx2.h.
//
// For each split of 256 keys: all scores (keys as lanes, components summed in ascending order), one
// exact softmax over the split, then the values (components as lanes, keys added in ascending
// order). Each row's operations are the same whichever rows share its tile: a row that does not see
// all keys of a stretch takes its own part of it alone.
#pragma once

#include "ops/attention_split.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

constexpr int32_t kSplitBlocks = kAttentionSplit / kAttentionBlock;
constexpr int32_t kPassRows = 6;  // rows held in registers at a time

struct F32Cache {
  static constexpr int64_t kBytes = 4;
  static Vec16 load_vector(const std::byte* from) {
    return load(reinterpret_cast<const float*>(from));
  }
};
struct F16Cache {
  static constexpr int64_t kBytes = 2;
  static Vec16 load_vector(const std::byte* from) { return load_f16(from); }
};
struct Bf16Cache {
  static constexpr int64_t kBytes = 2;
  static Vec16 load_vector(const std::byte* from) { return load_bf16(from); }
};

// Keys of a split, counted from its first.
struct Range {
  int32_t first, last;  // [first, last)
};

struct Split {
  const std::byte* keys[kSplitBlocks];    // this head's K of each block, null where no row looks
  const std::byte* values[kSplitBlocks];  // its V
  Range visible[kAttentionTileRows];
  Range any;  // union over the rows
  float scores[kAttentionTileRows][kAttentionSplit];
};

Range clip(int32_t first, int32_t last, int32_t split_first) {
  const int32_t from = first > split_first ? first - split_first : 0;
  const int32_t to = last - split_first < kAttentionSplit ? last - split_first : kAttentionSplit;
  return to > from ? Range{from, to} : Range{0, 0};
}

bool empty(Range range) { return range.first >= range.last; }

void locate(const AttentionTile& tile, int32_t split_first, Split& split) {
  split.any = {kAttentionSplit, 0};
  for (int32_t r = 0; r < tile.rows; ++r) {
    const Range range = clip(tile.key_first[r], tile.key_last[r], split_first);
    split.visible[r] = range;
    if (empty(range)) continue;
    if (range.first < split.any.first) split.any.first = range.first;
    if (range.last > split.any.last) split.any.last = range.last;
  }
  const int32_t* table = tile.block_table + split_first / kAttentionBlock;
  for (int32_t b = split.any.first / 16; b * 16 < split.any.last; ++b) {
    split.keys[b] = tile.keys + table[b] * tile.block_stride;
    split.values[b] = tile.values + table[b] * tile.block_stride;
  }
}

// --- scores ---

inline Vec16 finish_score(const AttentionTile& tile, Vec16 sum) {
  const Vec16 score = mul(sum, broadcast(tile.scale));
  if (tile.soft_cap <= 0.0f) return score;
  const Vec16 cap = broadcast(tile.soft_cap);
  return mul(cap, tanh(div(score, cap)));
}

// Rows [row, row + kRows) against kBlocks blocks of keys from `block` on.
template <class Cache, int kRows, int kBlocks>
void score_blocks(const AttentionTile& tile, int32_t row, int32_t block, Split& split) {
  const int32_t head_dim = tile.head_dim;
  Vec16 sums[kRows][kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) sums[r][b] = zero();
  }
  for (int32_t d = 0; d < head_dim; ++d) {
    Vec16 keys[kBlocks];
    for (int b = 0; b < kBlocks; ++b) {
      keys[b] = Cache::load_vector(split.keys[block + b] + d * 16 * Cache::kBytes);
    }
    for (int r = 0; r < kRows; ++r) {
      const Vec16 q = broadcast(tile.q[row + r][d]);
      for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(q, keys[b], sums[r][b]);
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) {
      store(&split.scores[row + r][(block + b) * 16], finish_score(tile, sums[r][b]));
    }
  }
}

template <class Cache, int kRows>
void score_rows(const AttentionTile& tile, int32_t row, Split& split) {
  int32_t block = split.any.first / 16;
  const int32_t last = (split.any.last + 15) / 16;
  for (; block + kScoreBlocks <= last; block += kScoreBlocks) {
    score_blocks<Cache, kRows, kScoreBlocks>(tile, row, block, split);
  }
  for (; block < last; ++block) score_blocks<Cache, kRows, 1>(tile, row, block, split);
}

// --- softmax ---

// Scores of row r become exp(score - largest), 0 where the row does not look.
void exponentiate(Split& split, int32_t r, const AttentionPartial& partial) {
  const Range range = split.visible[r];
  float* scores = split.scores[r];
  const int32_t block_first = range.first / 16;
  const int32_t block_last = (range.last + 15) / 16;
  Vec16 largest = broadcast(-__builtin_inff());
  for (int32_t b = block_first; b < block_last; ++b) {
    const int from = range.first > b * 16 ? range.first - b * 16 : 0;
    const int to = range.last < b * 16 + 16 ? range.last - b * 16 : 16;
    const Vec16 seen = keep_lanes(load(scores + b * 16), from, to, -__builtin_inff());
    store(scores + b * 16, seen);
    largest = max(largest, seen);
  }
  partial.largest[r] = largest_of(largest);
  Vec16 total = zero();
  for (int32_t b = block_first; b < block_last; ++b) {
    const Vec16 weight = exp(sub(load(scores + b * 16), broadcast(partial.largest[r])));
    store(scores + b * 16, weight);
    total = add(total, weight);
  }
  partial.total[r] = sum_of(total);
}

// --- values ---

// sums[row + r][d ...] += weight * value over keys [range), for kRows rows and kVecs * 16
// components.
template <class Cache, int kRows, int kVecs>
void add_values(const Split& split, int32_t row, Range range, int32_t d, int32_t head_dim,
                float* sums) {
  Vec16 acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) acc[r][i] = load(sums + (row + r) * head_dim + d + i * 16);
  }
  for (int32_t key = range.first; key < range.last;) {
    const int32_t block_end = (key / 16 + 1) * 16;
    const int32_t last = block_end < range.last ? block_end : range.last;
    const std::byte* value =
        split.values[key / 16] + (int64_t{key % 16} * head_dim + d) * Cache::kBytes;
    for (; key < last; ++key, value += head_dim * Cache::kBytes) {
      Vec16 values[kVecs];
      for (int i = 0; i < kVecs; ++i)
        values[i] = Cache::load_vector(value + i * 16 * Cache::kBytes);
      for (int r = 0; r < kRows; ++r) {
        const Vec16 weight = broadcast(split.scores[row + r][key]);
        for (int i = 0; i < kVecs; ++i) acc[r][i] = fma(weight, values[i], acc[r][i]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) store(sums + (row + r) * head_dim + d + i * 16, acc[r][i]);
  }
}

template <class Cache, int kRows>
void add_stretch(const Split& split, int32_t row, Range range, int32_t head_dim, float* sums) {
  if (empty(range)) return;
  int32_t d = 0;
  for (; d + kValueVecs * 16 <= head_dim; d += kValueVecs * 16) {
    add_values<Cache, kRows, kValueVecs>(split, row, range, d, head_dim, sums);
  }
  for (; d < head_dim; d += 16) add_values<Cache, kRows, 1>(split, row, range, d, head_dim, sums);
}

// Keys that all rows see are taken together; what only some see, before and after, row by row.
template <class Cache, int kRows>
void add_value_rows(const Split& split, int32_t row, int32_t head_dim, float* sums) {
  Range common{0, kAttentionSplit};
  for (int32_t r = row; r < row + kRows; ++r) {
    const Range range = split.visible[r];
    if (range.first > common.first) common.first = range.first;
    if (range.last < common.last) common.last = range.last;
  }
  if (empty(common)) common = {0, 0};
  for (int32_t r = row; r < row + kRows; ++r) {
    const Range range = split.visible[r];
    const int32_t last = empty(common) ? range.last : common.first;
    add_stretch<Cache, 1>(split, r, {range.first, last}, head_dim, sums);
  }
  if (empty(common)) return;
  add_stretch<Cache, kRows>(split, row, common, head_dim, sums);
  for (int32_t r = row; r < row + kRows; ++r) {
    add_stretch<Cache, 1>(split, r, {common.last, split.visible[r].last}, head_dim, sums);
  }
}

// --- rows in passes ---

template <class Cache>
void score_all(const AttentionTile& tile, Split& split) {
  int32_t row = 0;
  for (; row + kPassRows <= tile.rows; row += kPassRows) {
    score_rows<Cache, kPassRows>(tile, row, split);
  }
  switch (tile.rows - row) {
    case 5:
      return score_rows<Cache, 5>(tile, row, split);
    case 4:
      return score_rows<Cache, 4>(tile, row, split);
    case 3:
      return score_rows<Cache, 3>(tile, row, split);
    case 2:
      return score_rows<Cache, 2>(tile, row, split);
    case 1:
      return score_rows<Cache, 1>(tile, row, split);
    default:
      return;
  }
}

template <class Cache>
void add_all_values(const AttentionTile& tile, const Split& split, float* sums) {
  int32_t row = 0;
  for (; row + kValueRows <= tile.rows; row += kValueRows) {
    add_value_rows<Cache, kValueRows>(split, row, tile.head_dim, sums);
  }
  for (; row + 3 <= tile.rows; row += 3) {
    add_value_rows<Cache, 3>(split, row, tile.head_dim, sums);
  }
  for (; row + 2 <= tile.rows; row += 2) {
    add_value_rows<Cache, 2>(split, row, tile.head_dim, sums);
  }
  for (; row < tile.rows; ++row) add_value_rows<Cache, 1>(split, row, tile.head_dim, sums);
}

template <class Cache>
void attend(const AttentionTile& tile, int32_t split_first, const AttentionPartial& partial) {
  Split split;
  locate(tile, split_first, split);
  score_all<Cache>(tile, split);
  for (int32_t r = 0; r < tile.rows; ++r) {
    if (empty(split.visible[r])) continue;
    exponentiate(split, r, partial);
    float* sums = partial.sums + int64_t{r} * tile.head_dim;
    for (int32_t d = 0; d < tile.head_dim; d += 16) store(sums + d, zero());
  }
  add_all_values<Cache>(tile, split, partial.sums);
}

void attend_split(const AttentionTile& tile, int32_t split_first, const AttentionPartial& partial) {
  switch (tile.element) {
    case KvElement::kF32:
      return attend<F32Cache>(tile, split_first, partial);
    case KvElement::kF16:
      return attend<F16Cache>(tile, split_first, partial);
    case KvElement::kBF16:
      return attend<Bf16Cache>(tile, split_first, partial);
  }
}

}  // namespace
}  // namespace headrace
