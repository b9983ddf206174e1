// One tile of rows against one split of the keys: what attention hands to the kernels for one
// instruction set. Plain data, no inline functions.
#pragma once

#include <cstddef>
#include <cstdint>

#include "ops/attention/kv_format.h"

namespace headrace {

inline constexpr int32_t kAttentionSplit = 256;  // keys
inline constexpr int32_t kAttentionBlock = 16;   // tokens of a cache block
// 14 rows x 256 scores are 14 KB, beside 32 KB of keys of 64 components in a first-level cache
// of 48.
inline constexpr int32_t kAttentionTileRows = 14;

inline constexpr int32_t kHeadDimMax = 576;  // a latent of 512 and a rotated key of 64

inline constexpr int32_t kTreeBlocksMax = 5;  // of a tree of 64 rows, wherever in a block it begins

// Rows (a query position and one head each) of one sequence that share a key head.
struct AttentionTile {
  int32_t rows;                           // 1 .. kAttentionTileRows
  const float* q[kAttentionTileRows];     // [k_dim] each
  int32_t key_first[kAttentionTileRows];  // keys [first, last) are visible, by position
  int32_t key_last[kAttentionTileRows];
  // Keys of positions from tree_first on lie at places tree_first + j, of the bits j of the row's
  // path in ascending order. No bits: at their positions.
  uint64_t path[kAttentionTileRows];
  int32_t tree_first;
  // This head in the K and the V part of block 0: numbers [d][16 tokens] and [16 tokens][d], behind
  // them the scales of formats that have some, [groups][16 tokens].
  const std::byte* keys;
  const std::byte* values;
  int64_t block_stride;  // bytes
  const int32_t* block_table;
  int32_t k_dim, v_dim;  // multiples of 16, at most kHeadDimMax
  KvFormat k_format, v_format;
  bool values_are_keys;  // a value is the first v_dim components of its key; `values` is `keys`
  float scale;
  float soft_cap;                   // 0 = none
  float slope[kAttentionTileRows];  // that a score loses a position; of 0 nothing is taken
  // Of what scores gain by distances (attention.h): of each row its numbers, and all profiles.
  const float* relative[kAttentionTileRows];  // [relative_count] each
  const float* profiles;
  int32_t relative_count, relative_extent, relative_pad;  // count 0: scores gain nothing
};

// What a split gives for each row: with s its scores, largest = max s, total = sum exp(s -
// largest), sums = sum exp(s - largest) v. Rows that see no key of the split are left as they are.
struct AttentionPartial {
  float* largest;  // [rows]
  float* total;    // [rows]
  float* sums;     // [rows, v_dim]
};

using AttendSplit = void (*)(const AttentionTile& tile, int32_t split_first,
                             const AttentionPartial& partial);

void attend_split_avx512(const AttentionTile&, int32_t, const AttentionPartial&);
void attend_split_avx2(const AttentionTile&, int32_t, const AttentionPartial&);

}  // namespace headrace
