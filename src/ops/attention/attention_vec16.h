// The body of the attention kernels. Included after vec16_avx512.h or vec16_avx2.h.
//
// For each split of 256 keys: all scores (keys as lanes, components summed in ascending order), one
// exact softmax over the split, then the values (components as lanes, keys added in ascending
// order). Each row's operations are the same whichever rows share its tile: a row that does not see
// all keys of a stretch takes its own part of it alone.
#pragma once

#include "ops/attention/split.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

constexpr int32_t kSplitBlocks = kAttentionSplit / kAttentionBlock;
// Behind the blocks of a split, in the tables below: those of the tile's tree.
constexpr int32_t kBlocksMax = kSplitBlocks + kTreeBlocksMax;

// How a format is read: as floats, but for a factor where it has scales.
struct F32Cache {
  static constexpr bool kScales = false;
  static constexpr int64_t kBytes = 4;
  static Vec16 load_vector(const std::byte* from) {
    return load(reinterpret_cast<const float*>(from));
  }
};
struct F16Cache {
  static constexpr bool kScales = false;
  static constexpr int64_t kBytes = 2;
  static Vec16 load_vector(const std::byte* from) { return load_f16(from); }
};
struct Bf16Cache {
  static constexpr bool kScales = false;
  static constexpr int64_t kBytes = 2;
  static Vec16 load_vector(const std::byte* from) { return load_bf16(from); }
};
struct Int8Cache {
  static constexpr bool kScales = true;
  static constexpr int64_t kBytes = 1;
  static Vec16 load_vector(const std::byte* from) { return load_i8(from); }
};
// Half a byte a number (KvHeadView::half_byte()).
struct Int4Cache {
  static constexpr bool kScales = true;
  static constexpr int64_t kBytes = 1;  // at most
  static Vec16 load_vector(const std::byte* from) { return load_i4(from); }
};

// Bytes of numbers that lie side by side, a multiple of 16.
template <class Cache>
constexpr int64_t bytes_of_numbers(int64_t count) {
  return __is_same(Cache, Int4Cache) ? count / 2 : count * Cache::kBytes;
}
// Component d of a block's keys.
template <class Cache>
Vec16 load_keys(const std::byte* keys, int32_t d) {
  if constexpr (__is_same(Cache, Int4Cache)) {
    return load_i4_half(keys + int64_t{d} / 2 * 16, d % 2);
  } else {
    return Cache::load_vector(keys + int64_t{d} * 16 * Cache::kBytes);
  }
}

// A tile of so few rows is bound by reading the cache: scores fetch the values ahead, values the
// next split's keys.
constexpr int kFewRows = 8;

// Keys of a split, counted from its first.
struct Range {
  int32_t first, last;  // [first, last)
};

struct Split {
  const std::byte* keys[kBlocksMax];    // this head's K of each block, null where no row looks
  const std::byte* values[kBlocksMax];  // its V
  const std::byte* ahead[kBlocksMax];   // K of the next split, or again of this
  Range visible[kAttentionTileRows];    // by position; from add_all_values() on those in place
  Range any;                            // union over the rows, of keys in place
  int32_t tree_at;      // position from which on keys of a path lie elsewhere, that of the split's
                        // end where none do
  int32_t tree_blocks;  // where rows look at it
  // [head_dim / 16][tile's rows][16]: the rows of a pass at constant distances from one address.
  alignas(64) float q[kAttentionTileRows * kHeadDimMax];
  alignas(64) float scores[kAttentionTileRows][kBlocksMax * kAttentionBlock];
  // Of values in a format that has them.
  alignas(64) float scales[kHeadDimMax / kKvGroup][kBlocksMax * kAttentionBlock];
};

Range clip(int32_t first, int32_t last, int32_t split_first) {
  const int32_t from = first > split_first ? first - split_first : 0;
  const int32_t to = last - split_first < kAttentionSplit ? last - split_first : kAttentionSplit;
  return to > from ? Range{from, to} : Range{0, 0};
}

bool empty(Range range) { return range.first >= range.last; }

Range in_place(const Split& split, Range range) {
  const int32_t last = range.last < split.tree_at ? range.last : split.tree_at;
  return last > range.first ? Range{range.first, last} : Range{0, 0};
}

// Calls take(key, other) for the keys of row r that this split has of its path: where its position
// is, and where it lies among the tree's blocks.
template <class Take>
void for_each_on_path(const AttentionTile& tile, int32_t split_first, Range visible, int32_t r,
                      Take take) {
  const int32_t tree_key = kAttentionSplit + tile.tree_first % kAttentionBlock;
  int32_t key = tile.tree_first - split_first;
  for (uint64_t path = tile.path[r]; path != 0; path &= path - 1, ++key) {
    if (key < visible.first || key >= visible.last) continue;
    take(key, tree_key + __builtin_ctzll(path));
  }
}

// All of the tree's, where a row looks at a key of it.
void locate_tree(const AttentionTile& tile, int32_t split_first, Split& split) {
  split.tree_at = kAttentionSplit;
  split.tree_blocks = 0;
  uint64_t rows = 0;
  for (int32_t r = 0; r < tile.rows; ++r) rows |= tile.path[r];
  if (rows == 0) return;
  const int32_t at = tile.tree_first - split_first;
  if (at >= kAttentionSplit) return;
  split.tree_at = at > 0 ? at : 0;
  const int32_t last = tile.tree_first % kAttentionBlock + 64 - __builtin_clzll(rows);
  split.tree_blocks = (last + kAttentionBlock - 1) / kAttentionBlock;
  const int32_t* table = tile.block_table + tile.tree_first / kAttentionBlock;
  for (int32_t b = 0; b < split.tree_blocks; ++b) {
    split.keys[kSplitBlocks + b] = tile.keys + table[b] * tile.block_stride;
    split.values[kSplitBlocks + b] = tile.values + table[b] * tile.block_stride;
    split.ahead[kSplitBlocks + b] = split.keys[kSplitBlocks + b];
  }
}

void locate(const AttentionTile& tile, int32_t split_first, Split& split) {
  locate_tree(tile, split_first, split);
  split.any = {kAttentionSplit, 0};
  for (int32_t r = 0; r < tile.rows; ++r) {
    split.visible[r] = clip(tile.key_first[r], tile.key_last[r], split_first);
    const Range range = in_place(split, split.visible[r]);
    if (empty(range)) continue;
    if (range.first < split.any.first) split.any.first = range.first;
    if (range.last > split.any.last) split.any.last = range.last;
  }
  const int32_t* table = tile.block_table + split_first / kAttentionBlock;
  for (int32_t b = split.any.first / 16; b * 16 < split.any.last; ++b) {
    split.keys[b] = tile.keys + table[b] * tile.block_stride;
    split.values[b] = tile.values + table[b] * tile.block_stride;
    const int32_t next = split_first + kAttentionSplit + b * kAttentionBlock;
    const bool more = tile.rows <= kFewRows && next < tile.key_last[tile.rows - 1];
    split.ahead[b] = more ? tile.keys + table[b + kSplitBlocks] * tile.block_stride : split.keys[b];
  }
}

void stage_q(const AttentionTile& tile, Split& split) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    for (int32_t d = 0; d < tile.k_dim; d += 16) {
      store(split.q + d * tile.rows + r * 16, load(tile.q[r] + d));
    }
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
  const int32_t k_dim = tile.k_dim;
  Vec16 sums[kRows][kBlocks];
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) sums[r][b] = zero();
  }
  for (int32_t d = 0; d < k_dim; d += 16) {
    const float* q = split.q + d * tile.rows + row * 16;
    Vec16 scales[kBlocks];
    if constexpr (Cache::kScales) {
      const int64_t at = bytes_of_numbers<Cache>(k_dim * 16) + int64_t{d} / kKvGroup * 32;
      for (int b = 0; b < kBlocks; ++b) scales[b] = load_bf16(split.keys[block + b] + at);
    }
    for (int32_t i = 0; i < 16; ++i, ++q) {
      const int64_t at = bytes_of_numbers<Cache>(int64_t{d + i} * 16);
      Vec16 keys[kBlocks];
      for (int b = 0; b < kBlocks; ++b) {
        keys[b] = load_keys<Cache>(split.keys[block + b], d + i);
        if constexpr (Cache::kScales) keys[b] = mul(keys[b], scales[b]);
        if (kRows <= kFewRows && (Cache::kBytes > 1 || i % 4 == 0)) {
          __builtin_prefetch(split.values[block + b] + at);
        }
      }
      for (int r = 0; r < kRows; ++r) {
        const Vec16 factor = broadcast(q[r * 16]);
        for (int b = 0; b < kBlocks; ++b) sums[r][b] = fma(factor, keys[b], sums[r][b]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int b = 0; b < kBlocks; ++b) {
      store(&split.scores[row + r][(block + b) * 16], finish_score(tile, sums[r][b]));
    }
  }
}

// Rows [row, row + kRows).
template <class Cache, int kRows>
void score_rows(const AttentionTile& tile, int32_t row, Split& split) {
  constexpr int kBlocks = pass_vecs(kRows);
  int32_t block = split.any.first / 16;
  const int32_t last = (split.any.last + 15) / 16;
  for (; block + kBlocks <= last; block += kBlocks) {
    score_blocks<Cache, kRows, kBlocks>(tile, row, block, split);
  }
  for (; block < last; ++block) score_blocks<Cache, kRows, 1>(tile, row, block, split);
}

// Row by row; not part of the loops that every step runs.
template <class Cache>
[[gnu::noinline]] void score_tree(const AttentionTile& tile, Split& split) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    for (int32_t b = 0; tile.path[r] != 0 && b < split.tree_blocks; ++b) {
      score_blocks<Cache, 1, 1>(tile, r, kSplitBlocks + b, split);
    }
  }
}

// Scores of row r's path go to its positions, and weights back to where the values lie.
void take_path_scores(const AttentionTile& tile, int32_t split_first, Split& split, int32_t r) {
  if (split.tree_blocks == 0) return;
  float* scores = split.scores[r];
  for_each_on_path(tile, split_first, split.visible[r], r,
                   [&](int32_t key, int32_t other) { scores[key] = scores[other]; });
}
void put_path_weights(const AttentionTile& tile, int32_t split_first, Split& split, int32_t r) {
  if (split.tree_blocks == 0) return;
  float* scores = split.scores[r];
  for_each_on_path(tile, split_first, split.visible[r], r,
                   [&](int32_t key, int32_t other) { scores[other] = scores[key]; });
}

// --- softmax ---

// What the first and the last block have beyond the range becomes -infinity.
void hide_ends(Range range, float* scores) {
  const auto keep = [&](int32_t block, int from, int to) {
    float* at = scores + block * 16;
    store(at, keep_lanes(load(at), from, to, -__builtin_inff()));
  };
  keep(range.first / 16, range.first % 16, 16);
  keep((range.last - 1) / 16, 0, (range.last - 1) % 16 + 1);
}

// Scores of row r lose what their keys are away: `away` positions that of key 0 of the split.
void lean(Range range, float slope, float away, float* scores) {
  constexpr float kLanes[16] = {0, 1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15};
  const Vec16 lanes = load(kLanes);
  for (int32_t b = range.first / 16; b * 16 < range.last; ++b) {
    const Vec16 distance = sub(broadcast(away - static_cast<float>(b * 16)), lanes);
    store(scores + b * 16, fnma(broadcast(slope), distance, load(scores + b * 16)));
  }
}

// Scores of row r gain what the distances of their keys give: `away` positions that of key 0 of the
// split.
[[gnu::noinline]] void add_relative(const AttentionTile& tile, int32_t r, Range range, int32_t away,
                                    float* scores) {
  const int64_t width = tile.relative_extent + 2 * tile.relative_pad;
  for (int32_t b = range.first / 16; b * 16 < range.last; ++b) {
    // Profiles begin with the farthest key: a block's keys are neighbours in them.
    const int32_t at = tile.relative_pad + tile.relative_extent - 1 - away + b * 16;
    if (at <= 0) continue;  // all of its keys are farther
    Vec16 score = load(scores + b * 16);
    for (int32_t i = 0; i < tile.relative_count; ++i) {
      score = fma(broadcast(tile.relative[r][i]), load(tile.profiles + i * width + at), score);
    }
    store(scores + b * 16, score);
  }
}

// Scores of row r become exp(score - largest), 0 where the row does not look.
void exponentiate(Split& split, int32_t r, const AttentionPartial& partial) {
  const Range range = split.visible[r];
  float* scores = split.scores[r];
  const int32_t block_first = range.first / 16;
  const int32_t block_last = (range.last + 15) / 16;
  hide_ends(range, scores);
  Vec16 largest = broadcast(-__builtin_inff());
  for (int32_t b = block_first; b < block_last; ++b) largest = max(largest, load(scores + b * 16));
  partial.largest[r] = largest_of(largest);
  const Vec16 top = broadcast(partial.largest[r]);
  Vec16 total = zero();
  for (int32_t b = block_first; b < block_last; ++b) {
    const Vec16 weight = exp_of_negative(sub(load(scores + b * 16), top));
    store(scores + b * 16, weight);
    total = add(total, weight);
  }
  partial.total[r] = sum_of(total);
}

// --- values ---

// The scales of the values that are looked at, for all passes over them.
template <class Cache>
void stage_scales_of(const AttentionTile& tile, int32_t block, Split& split) {
  const std::byte* scales = split.values[block] + bytes_of_numbers<Cache>(tile.v_dim * 16);
  for (int32_t g = 0; g * kKvGroup < tile.v_dim; ++g) {
    store(&split.scales[g][block * 16], load_bf16(scales + g * 32));
  }
}
template <class Cache>
void stage_scales(const AttentionTile& tile, Split& split) {
  for (int32_t b = split.any.first / 16; b * 16 < split.any.last; ++b) {
    stage_scales_of<Cache>(tile, b, split);
  }
  for (int32_t b = 0; b < split.tree_blocks; ++b)
    stage_scales_of<Cache>(tile, kSplitBlocks + b, split);
}

// sums[row + r][d ...] += weight * value over keys [range), for kRows rows and kVecs * 16
// components.
template <class Cache, int kRows, int kVecs>
void add_values(const Split& split, int32_t row, Range range, int32_t d, int32_t v_dim,
                float* sums) {
  Vec16 acc[kRows][kVecs];
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) acc[r][i] = load(sums + (row + r) * v_dim + d + i * 16);
  }
  for (int32_t key = range.first; key < range.last;) {
    const int32_t block_end = (key / 16 + 1) * 16;
    const int32_t last = block_end < range.last ? block_end : range.last;
    const int64_t at = bytes_of_numbers<Cache>(int64_t{key % 16} * v_dim + d);
    const std::byte* value = split.values[key / 16] + at;
    const std::byte* ahead = split.ahead[key / 16] + at;
    for (; key < last; ++key) {
      Vec16 values[kVecs];
      for (int i = 0; i < kVecs; ++i) {
        values[i] = Cache::load_vector(value + bytes_of_numbers<Cache>(i * 16));
        if constexpr (Cache::kScales) {
          values[i] = mul(values[i], broadcast(split.scales[(d + i * 16) / kKvGroup][key]));
        }
        if (kRows <= kFewRows && (Cache::kBytes > 1 || i % 4 == 0)) {
          __builtin_prefetch(ahead + bytes_of_numbers<Cache>(i * 16));
        }
      }
      value += bytes_of_numbers<Cache>(v_dim);
      ahead += bytes_of_numbers<Cache>(v_dim);
      for (int r = 0; r < kRows; ++r) {
        const Vec16 weight = broadcast(split.scores[row + r][key]);
        for (int i = 0; i < kVecs; ++i) acc[r][i] = fma(weight, values[i], acc[r][i]);
      }
    }
  }
  for (int r = 0; r < kRows; ++r) {
    for (int i = 0; i < kVecs; ++i) store(sums + (row + r) * v_dim + d + i * 16, acc[r][i]);
  }
}

template <class Cache, int kRows>
void add_stretch(const Split& split, int32_t row, Range range, int32_t v_dim, float* sums) {
  if (empty(range)) return;
  constexpr int kVecs = pass_vecs(kRows);
  int32_t d = 0;
  for (; d + kVecs * 16 <= v_dim; d += kVecs * 16) {
    add_values<Cache, kRows, kVecs>(split, row, range, d, v_dim, sums);
  }
  for (; d < v_dim; d += 16) add_values<Cache, kRows, 1>(split, row, range, d, v_dim, sums);
}

// Behind the keys in place: those of each row's path that lie in `blocks`, one by one.
template <class Cache>
[[gnu::noinline]] void add_paths(const AttentionTile& tile, int32_t split_first, const Split& split,
                                 Range blocks, float* sums) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    const Range visible = clip(tile.key_first[r], tile.key_last[r], split_first);
    for_each_on_path(tile, split_first, visible, r, [&](int32_t, int32_t key) {
      if (key / 16 < blocks.first || key / 16 >= blocks.last) return;
      add_stretch<Cache, 1>(split, r, {key, key + 1}, tile.v_dim, sums);
    });
  }
}

// Keys that all rows see are taken together; what only some see, before and after, row by row.
template <class Cache, int kRows>
void add_value_rows(const Split& split, int32_t row, int32_t v_dim, float* sums) {
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
    add_stretch<Cache, 1>(split, r, {range.first, last}, v_dim, sums);
  }
  if (empty(common)) return;
  add_stretch<Cache, kRows>(split, row, common, v_dim, sums);
  for (int32_t r = row; r < row + kRows; ++r) {
    add_stretch<Cache, 1>(split, r, {common.last, split.visible[r].last}, v_dim, sums);
  }
}

// --- rows in passes ---

template <class Cache>
struct ScorePass {
  template <int kRows>
  static void run(const AttentionTile& tile, int32_t row, Split& split) {
    score_rows<Cache, kRows>(tile, row, split);
  }
};
template <class Cache>
struct ValuePass {
  template <int kRows>
  static void run(const AttentionTile& tile, int32_t row, const Split& split, float* sums) {
    add_value_rows<Cache, kRows>(split, row, tile.v_dim, sums);
  }
};

// Pass::run<rows>(tile, row, ...), 1 <= rows <= kRowsMax.
template <class Pass, int kRowsMax, class... Args>
void run_pass(int32_t rows, const AttentionTile& tile, int32_t row, Args&... args) {
  if constexpr (kRowsMax > 1) {
    if (rows < kRowsMax) return run_pass<Pass, kRowsMax - 1>(rows, tile, row, args...);
  }
  Pass::template run<kRowsMax>(tile, row, args...);
}

// All rows of the tile, as many at a time as registers hold.
template <class Pass, class... Args>
void run_passes(const AttentionTile& tile, Args&... args) {
  for (int32_t row = 0; row < tile.rows; row += kPassRows) {
    const int32_t left = tile.rows - row;
    run_pass<Pass, kPassRows>(left < kPassRows ? left : kPassRows, tile, row, args...);
  }
}

// --- values that are part of keys ---

// The first v_dim components of the keys of a block, [v_dim][16 tokens], as values: [16][v_dim].
template <class Cache>
void turn_block(const std::byte* keys, int32_t k_dim, int32_t v_dim, float* values) {
  for (int32_t d = 0; d < v_dim; d += 16) {
    Vec16 tile[16];
    for (int32_t i = 0; i < 16; ++i) {
      tile[i] = load_keys<Cache>(keys, d + i);
      if constexpr (Cache::kScales) {
        const int64_t at = bytes_of_numbers<Cache>(k_dim * 16) + int64_t{d} / kKvGroup * 32;
        tile[i] = mul(tile[i], load_bf16(keys + at));
      }
    }
    transpose(tile);
    for (int32_t t = 0; t < 16; ++t) store(values + t * v_dim + d, tile[t]);
  }
}

// Blocks are turned one by one, and added to all rows before the next. Each row adds its keys in
// ascending order, one by one, as it does where values lie by themselves. (Those of a path lie in
// the order of their positions.)
template <class Cache>
void add_values_of_keys(const AttentionTile& tile, int32_t split_first, Split& split, float* sums) {
  alignas(64) float values[kAttentionBlock * kHeadDimMax];
  Range visible[kAttentionTileRows];
  for (int32_t r = 0; r < tile.rows; ++r) visible[r] = split.visible[r];
  for (int32_t b = split.any.first / 16; b * 16 < split.any.last; ++b) {
    turn_block<Cache>(split.keys[b], tile.k_dim, tile.v_dim, values);
    split.values[b] = split.ahead[b] = reinterpret_cast<const std::byte*>(values);
    for (int32_t r = 0; r < tile.rows; ++r) {
      const int32_t first = visible[r].first > b * 16 ? visible[r].first : b * 16;
      const int32_t last = visible[r].last < b * 16 + 16 ? visible[r].last : b * 16 + 16;
      split.visible[r] = last > first ? Range{first, last} : Range{0, 0};
    }
    run_passes<ValuePass<F32Cache>>(tile, split, sums);
  }
  for (int32_t b = kSplitBlocks; b < kSplitBlocks + split.tree_blocks; ++b) {
    turn_block<Cache>(split.keys[b], tile.k_dim, tile.v_dim, values);
    split.values[b] = split.ahead[b] = reinterpret_cast<const std::byte*>(values);
    add_paths<F32Cache>(tile, split_first, split, {b, b + 1}, sums);
  }
}

template <class Cache>
void add_values_apart(const AttentionTile& tile, int32_t split_first, Split& split, float* sums) {
  if constexpr (Cache::kScales) stage_scales<Cache>(tile, split);
  run_passes<ValuePass<Cache>>(tile, split, sums);
  if (split.tree_blocks == 0) return;
  add_paths<Cache>(tile, split_first, split, {kSplitBlocks, kBlocksMax}, sums);
}

// --- formats ---

void score_all(const AttentionTile& tile, Split& split) {
  switch (tile.k_format) {
    case KvFormat::kF32:
      return run_passes<ScorePass<F32Cache>>(tile, split);
    case KvFormat::kF16:
      return run_passes<ScorePass<F16Cache>>(tile, split);
    case KvFormat::kBF16:
      return run_passes<ScorePass<Bf16Cache>>(tile, split);
    case KvFormat::kInt8:
      return run_passes<ScorePass<Int8Cache>>(tile, split);
    case KvFormat::kInt4:
      return run_passes<ScorePass<Int4Cache>>(tile, split);
    case KvFormat::kFp8:  // fits_attention_tiles() has none of GPUs
    case KvFormat::kInt8Head:
    case KvFormat::kInt4Head:
      return;
  }
}

void score_all_of_tree(const AttentionTile& tile, Split& split) {
  switch (tile.k_format) {
    case KvFormat::kF32:
      return score_tree<F32Cache>(tile, split);
    case KvFormat::kF16:
      return score_tree<F16Cache>(tile, split);
    case KvFormat::kBF16:
      return score_tree<Bf16Cache>(tile, split);
    case KvFormat::kInt8:
      return score_tree<Int8Cache>(tile, split);
    case KvFormat::kInt4:
      return score_tree<Int4Cache>(tile, split);
    case KvFormat::kFp8:
    case KvFormat::kInt8Head:
    case KvFormat::kInt4Head:
      return;
  }
}

void add_all_values_of_keys(const AttentionTile& tile, int32_t split_first, Split& split,
                            float* const sums) {
  switch (tile.k_format) {
    case KvFormat::kF32:
      return add_values_of_keys<F32Cache>(tile, split_first, split, sums);
    case KvFormat::kF16:
      return add_values_of_keys<F16Cache>(tile, split_first, split, sums);
    case KvFormat::kBF16:
      return add_values_of_keys<Bf16Cache>(tile, split_first, split, sums);
    case KvFormat::kInt8:
      return add_values_of_keys<Int8Cache>(tile, split_first, split, sums);
    case KvFormat::kInt4:
      return add_values_of_keys<Int4Cache>(tile, split_first, split, sums);
    case KvFormat::kFp8:
    case KvFormat::kInt8Head:
    case KvFormat::kInt4Head:
      return;
  }
}

void add_all_values(const AttentionTile& tile, int32_t split_first, Split& split,
                    float* const sums) {
  for (int32_t r = 0; r < tile.rows; ++r) split.visible[r] = in_place(split, split.visible[r]);
  if (tile.values_are_keys) return add_all_values_of_keys(tile, split_first, split, sums);
  switch (tile.v_format) {
    case KvFormat::kF32:
      return add_values_apart<F32Cache>(tile, split_first, split, sums);
    case KvFormat::kF16:
      return add_values_apart<F16Cache>(tile, split_first, split, sums);
    case KvFormat::kBF16:
      return add_values_apart<Bf16Cache>(tile, split_first, split, sums);
    case KvFormat::kInt8:
      return add_values_apart<Int8Cache>(tile, split_first, split, sums);
    case KvFormat::kInt4:
      return add_values_apart<Int4Cache>(tile, split_first, split, sums);
    case KvFormat::kFp8:
    case KvFormat::kInt8Head:
    case KvFormat::kInt4Head:
      return;
  }
}

void attend_split(const AttentionTile& tile, int32_t split_first, const AttentionPartial& partial) {
  Split split;
  locate(tile, split_first, split);
  stage_q(tile, split);
  score_all(tile, split);
  if (split.tree_blocks > 0) score_all_of_tree(tile, split);
  for (int32_t r = 0; r < tile.rows; ++r) {
    if (empty(split.visible[r])) continue;
    take_path_scores(tile, split_first, split, r);
    if (tile.slope[r] != 0.0f) {
      const auto away = static_cast<float>(tile.key_last[r] - 1 - split_first);
      lean(split.visible[r], tile.slope[r], away, split.scores[r]);
    }
    if (tile.relative_count > 0) {
      const int32_t away = tile.key_last[r] - 1 - split_first;
      add_relative(tile, r, split.visible[r], away, split.scores[r]);
    }
    exponentiate(split, r, partial);
    put_path_weights(tile, split_first, split, r);
    float* row = partial.sums + int64_t{r} * tile.v_dim;
    for (int32_t d = 0; d < tile.v_dim; d += 16) store(row + d, zero());
  }
  add_all_values(tile, split_first, split, partial.sums);
}

}  // namespace
}  // namespace headrace
