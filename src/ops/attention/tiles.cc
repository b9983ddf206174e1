#include "ops/attention/tiles.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <limits>

namespace headrace {
namespace {

// Up to so many tiles a thread, splits are shared out as well as tiles.
constexpr int64_t kFewTilesPerThread = 4;
// A fork-join costs about 4 us; one thread does some 40 multiply-adds a nanosecond.
constexpr int64_t kInlineMultiplyAdds = 300'000;

// Consecutive query positions x heads of one sequence that share a key head.
struct TileRows {
  const AttentionSequence* sequence;
  int32_t query_first, query_count;
  int32_t head_first, head_count;
  int32_t kv_head;

  int32_t rows() const { return query_count * head_count; }
};

// The tiles of a batch, numbered. A tile holds up to 14 rows: all heads of a group if they fit, and
// as many query positions as fit beside them.
class TileGrid {
 public:
  explicit TileGrid(const AttentionArgs& args)
      : sequences_(args.sequences),
        kv_heads_(args.kv.kv_heads),
        group_(static_cast<int32_t>(args.q.columns() / args.kv.k_dim) / kv_heads_),
        tile_heads_(std::min(group_, kAttentionTileRows)),
        head_tiles_((group_ + tile_heads_ - 1) / tile_heads_),
        tile_queries_(kAttentionTileRows / tile_heads_) {
    for (const AttentionSequence& sequence : sequences_) count_ += tiles_of(sequence);
  }

  int64_t count() const { return count_; }

  TileRows at(int64_t index) const {
    const AttentionSequence* sequence = sequences_.data();
    for (; index >= tiles_of(*sequence); ++sequence) index -= tiles_of(*sequence);
    const int32_t head_tile = static_cast<int32_t>(index % head_tiles_);
    const int32_t kv_head = static_cast<int32_t>(index / head_tiles_ % kv_heads_);
    const int32_t query_first =
        static_cast<int32_t>(index / head_tiles_ / kv_heads_) * tile_queries_;
    const int32_t head_offset = head_tile * tile_heads_;
    return {.sequence = sequence,
            .query_first = query_first,
            .query_count = std::min(tile_queries_, sequence->row_count - query_first),
            .head_first = kv_head * group_ + head_offset,
            .head_count = std::min(tile_heads_, group_ - head_offset),
            .kv_head = kv_head};
  }

 private:
  int64_t tiles_of(const AttentionSequence& sequence) const {
    const int64_t query_tiles = (sequence.row_count + tile_queries_ - 1) / tile_queries_;
    return query_tiles * kv_heads_ * head_tiles_;
  }

  std::span<const AttentionSequence> sequences_;
  int32_t kv_heads_;
  int32_t group_;
  int32_t tile_heads_;
  int32_t head_tiles_;
  int32_t tile_queries_;
  int64_t count_ = 0;
};

AttentionTile describe(const AttentionArgs& args, const TileRows& rows) {
  const KvLayerView& kv = args.kv;
  const AttentionSequence& sequence = *rows.sequence;
  AttentionTile tile;
  tile.rows = rows.rows();
  tile.keys = k_head(kv, 0, rows.kv_head).at;
  tile.values = v_head(kv, 0, rows.kv_head).at;
  tile.block_stride = kv.block_stride;
  tile.block_table = sequence.block_table + args.table_offset;
  tile.k_dim = kv.k_dim;
  tile.v_dim = kv.v_dim;
  tile.k_format = kv.k_format;
  tile.v_format = kv.v_format;
  tile.values_are_keys = kv.v_aliases_k;
  tile.scale = args.scale;
  tile.soft_cap = args.soft_cap;
  tile.tree_first = sequence.tree_first();
  tile.profiles = args.relative.profiles;
  tile.relative_count = args.relative.count;
  tile.relative_extent = args.relative.extent;
  tile.relative_pad = kRelativePad;
  for (int32_t r = 0; r < tile.rows; ++r) {
    const int32_t query = rows.query_first + r / rows.head_count;
    const int32_t head = rows.head_first + r % rows.head_count;
    const int32_t key_last = sequence.position(query) + 1;
    tile.q[r] = f32_row(args.q, sequence.row_first + query) + int64_t{head} * kv.k_dim;
    tile.key_first[r] = args.window > 0 ? std::max(0, key_last - args.window) : 0;
    if (args.chunk > 0) {
      tile.key_first[r] = std::max(tile.key_first[r], (key_last - 1) / args.chunk * args.chunk);
    }
    tile.key_last[r] = key_last;
    tile.path[r] = sequence.path(query);
    tile.slope[r] = args.slopes == nullptr ? 0.0f : args.slopes[head];
    if (args.relative.count == 0) continue;
    tile.relative[r] = f32_row(args.relative.numbers, sequence.row_first + query) +
                       int64_t{head} * args.relative.count;
  }
  return tile;
}

// Splits that any row of the tile looks at. (Those of a tree may have come behind rows that look
// further.)
struct SplitRange {
  int32_t first, last;  // [first, last)
};
SplitRange splits_of(const AttentionTile& tile) {
  return {*std::min_element(tile.key_first, tile.key_first + tile.rows) / kAttentionSplit,
          (*std::max_element(tile.key_last, tile.key_last + tile.rows) - 1) / kAttentionSplit + 1};
}

bool looks_at(const AttentionTile& tile, int32_t row, int32_t split) {
  return tile.key_first[row] < (split + 1) * kAttentionSplit &&
         tile.key_last[row] > split * kAttentionSplit;
}

// The state of a tile: splits are added in ascending order.
struct TileSums {
  alignas(64) std::array<float, kAttentionTileRows * kHeadDimMax> sums;
  std::array<float, kAttentionTileRows> largest;
  std::array<float, kAttentionTileRows> total;

  AttentionPartial view() { return {largest.data(), total.data(), sums.data()}; }
  // No key yet; a sink is a score of weight exp(sink - sink) and value 0.
  void clear(const AttentionTile& tile, const TileRows& rows, const float* sinks) {
    largest.fill(-std::numeric_limits<float>::infinity());
    total.fill(0.0f);
    std::fill_n(sums.begin(), tile.rows * tile.v_dim, 0.0f);
    for (int32_t r = 0; sinks != nullptr && r < tile.rows; ++r) {
      largest[static_cast<size_t>(r)] = sinks[rows.head_first + r % rows.head_count];
      total[static_cast<size_t>(r)] = 1.0f;
    }
  }
};

// Online softmax (Milakov and Gimelshein, 2018) over splits.
void merge_row(const AttentionPartial& from, int32_t row, int32_t v_dim, TileSums& state) {
  const auto r = static_cast<size_t>(row);
  const float largest = std::max(state.largest[r], from.largest[row]);
  const float keep = std::exp(state.largest[r] - largest);
  const float take = std::exp(from.largest[row] - largest);
  state.largest[r] = largest;
  state.total[r] = state.total[r] * keep + from.total[row] * take;
  float* sums = state.sums.data() + int64_t{row} * v_dim;
  const float* added = from.sums + int64_t{row} * v_dim;
  for (int32_t d = 0; d < v_dim; ++d) sums[d] = sums[d] * keep + added[d] * take;
}

void merge(const AttentionTile& tile, int32_t split, const AttentionPartial& from,
           TileSums& state) {
  for (int32_t r = 0; r < tile.rows; ++r) {
    if (looks_at(tile, r, split)) merge_row(from, r, tile.v_dim, state);
  }
}

void write_out(const AttentionArgs& args, const TileRows& rows, const TileSums& state) {
  const int32_t v_dim = args.kv.v_dim;
  for (int32_t r = 0; r < rows.rows(); ++r) {
    const int64_t row = rows.sequence->row_first + rows.query_first + r / rows.head_count;
    const int32_t head = rows.head_first + r % rows.head_count;
    float* out = f32_row(args.out, row) + int64_t{head} * v_dim;
    const float* sums = state.sums.data() + int64_t{r} * v_dim;
    const float inverse = 1.0f / state.total[static_cast<size_t>(r)];
    for (int32_t d = 0; d < v_dim; ++d) out[d] = sums[d] * inverse;
  }
}

void run_tile(const AttentionArgs& args, const TileRows& rows, AttendSplit attend_split) {
  const AttentionTile tile = describe(args, rows);
  const SplitRange splits = splits_of(tile);
  TileSums state, partial;
  state.clear(tile, rows, args.sinks);
  for (int32_t split = splits.first; split < splits.last; ++split) {
    attend_split(tile, split * kAttentionSplit, partial.view());
    merge(tile, split, partial.view(), state);
  }
  write_out(args, rows, state);
}

void run_tiles(OpContext& context, const AttentionArgs& args, const TileGrid& grid,
               AttendSplit attend_split) {
  context.device.pool().parallel_for(grid.count(), 1, [&](int64_t first, int64_t last) {
    // From the back: the last tiles of a prompt see the most keys.
    for (int64_t i = first; i < last; ++i) {
      run_tile(args, grid.at(grid.count() - 1 - i), attend_split);
    }
  });
}

// --- few tiles, many keys: splits in parallel, their results in the workspace ---

int64_t partial_floats(int32_t v_dim) { return kAttentionTileRows * (int64_t{v_dim} + 2); }

AttentionPartial partial_at(float* memory, int64_t item, int32_t v_dim) {
  float* largest = memory + item * partial_floats(v_dim);
  return {largest, largest + kAttentionTileRows, largest + 2 * kAttentionTileRows};
}

void run_splits(OpContext& context, const AttentionArgs& args, const TileGrid& grid,
                AttendSplit attend_split) {
  const int32_t v_dim = args.kv.v_dim;
  const auto tile_at = [&](int64_t i) { return describe(args, grid.at(i)); };
  const auto split_count = [](const AttentionTile& tile) {
    return int64_t{splits_of(tile).last} - splits_of(tile).first;
  };
  int64_t items = 0;
  for (int64_t i = 0; i < grid.count(); ++i) items += split_count(tile_at(i));
  const Workspace::Mark mark(context.workspace);
  auto* memory = context.workspace.take_array<float>(items * partial_floats(v_dim));

  // Neighbours to one thread: a split fetches the next one's keys ahead.
  const int64_t grain = std::max<int64_t>(1, items / (4 * context.device.pool().thread_count()));
  context.device.pool().parallel_for(items, grain, [&](int64_t first, int64_t last) {
    for (int64_t item = first; item < last; ++item) {
      int64_t i = 0, before = 0;
      AttentionTile tile = tile_at(0);
      for (; before + split_count(tile) <= item; tile = tile_at(++i)) before += split_count(tile);
      const auto split = splits_of(tile).first + static_cast<int32_t>(item - before);
      attend_split(tile, split * kAttentionSplit, partial_at(memory, item, v_dim));
    }
  });

  for (int64_t i = 0, item = 0; i < grid.count(); ++i) {
    const TileRows rows = grid.at(i);
    const AttentionTile tile = describe(args, rows);
    TileSums state;
    state.clear(tile, rows, args.sinks);
    for (int32_t split = splits_of(tile).first; split < splits_of(tile).last; ++split) {
      merge(tile, split, partial_at(memory, item++, v_dim), state);
    }
    write_out(args, rows, state);
  }
}

int64_t multiply_adds(const AttentionArgs& args) {
  int64_t rows_by_keys = 0;
  for (const AttentionSequence& sequence : args.sequences) {
    rows_by_keys += int64_t{sequence.row_count} * sequence.kv_length;
  }
  return 2 * rows_by_keys * args.q.columns();
}

}  // namespace

bool fits_attention_tiles(const AttentionArgs& args) {
  const KvLayerView& kv = args.kv;
  const auto fits = [](int32_t dim) { return dim % 16 == 0 && dim <= kHeadDimMax; };
  return kv.block_tokens == kAttentionBlock && kv.keys == KeyLayout::kTransposed &&
         !lies_in_columns(kv.k_format) && !lies_in_columns(kv.v_format) && fits(kv.k_dim) &&
         fits(kv.v_dim);
}

void run_attention_tiles(OpContext& context, const AttentionArgs& args, AttendSplit attend_split,
                         KeySplits splits) {
  const TileGrid grid(args);
  const int threads = context.device.pool().thread_count();
  if (threads == 1 || multiply_adds(args) < kInlineMultiplyAdds) {
    for (int64_t i = 0; i < grid.count(); ++i) run_tile(args, grid.at(i), attend_split);
  } else if (splits == KeySplits::kOneAfterTheOther ||
             grid.count() >= kFewTilesPerThread * threads) {
    run_tiles(context, args, grid, attend_split);
  } else {
    run_splits(context, args, grid, attend_split);
  }
}

int64_t attention_workspace_bytes(int thread_count, int32_t v_dim, int32_t kv_length_max) {
  const int64_t splits = (int64_t{kv_length_max} + kAttentionSplit - 1) / kAttentionSplit;
  return kFewTilesPerThread * thread_count * splits * partial_floats(v_dim) * 4 + 256;
}

}  // namespace headrace
