// Which thread block multiplies what in the product of grouped.h: how the rows of an expert are cut
// into tiles, and which tile of which expert an index is. The kernel and a test that goes through
// all tiles on a CPU include it.
#pragma once

#include <cstdint>

#include "ops/linear/wgmma_layout.h"

namespace headrace {

inline constexpr int kGroupedExpertsMax = 1024;

// A block has kGroups warpgroups of 64 rows of the list each, and kTile rows of W of an expert
// (gated: half of them gate's, half up's). Two blocks of a cluster take rows after rows with the
// same tile of W, or where no more than one block's rows are left, the same rows with one tile of W
// after the other.
template <int kGroups_, int kTile_, int kBlocks_>
struct GroupedShape {
  static constexpr int kGroups = kGroups_, kTile = kTile_, kBlocks = kBlocks_;
  static constexpr int kRows = kGroups * kWgmmaGroupRows;
  static constexpr int kClusterRows = kBlocks * kRows;
  static constexpr int kXBytes = kRows * kWgmmaRowBytes;
  static constexpr int kHalfRows = kTile / 2;
  static constexpr int kHalfBytes = kHalfRows * kWgmmaRowBytes;
  static constexpr int kWeightBytes = 2 * kHalfBytes;
  static constexpr int kStageBytes = kXBytes + kWeightBytes;  // x, then W's two halves
  static constexpr int kStages = (192 << 10) / kStageBytes;
  static constexpr int kSums = kTile / 2;  // of a thread
  static constexpr int kThreads = 128 * (1 + kGroups);
  // Of the first warpgroup: one thread copies W, two warps copy rows of x.
  static constexpr int kRowWarp = 2, kRowThreads = 64;
  static constexpr int kRowsOfThread = kRows * 8 / kRowThreads;  // 16 bytes of each a step
};

// What a thread of the two warps that copy rows of x has: a unit of 16 bytes of row `row` of a tile
// and of every kGroupedRowsApart-th behind it, and where in a stage the first goes, the others as
// many rows behind it: whole patterns of the swizzle apart.
inline constexpr int kGroupedRowsApart = 8;
struct GroupedRowCopy {
  int row, unit, place;
};
HEADRACE_HOST_DEVICE constexpr GroupedRowCopy grouped_row_copy(int thread) {
  return {thread / 8, thread % 8, swizzled_128(thread / 8, thread % 8 * 16)};
}
// How many rows such a thread copies of those from `row` of the list to `last`.
template <class Shape>
HEADRACE_HOST_DEVICE constexpr int32_t grouped_rows_of_thread(int32_t row, int32_t last) {
  const int32_t count = (last - row + kGroupedRowsApart - 1) / kGroupedRowsApart;
  return count < Shape::kRowsOfThread ? count : Shape::kRowsOfThread;
}

// The tiles of an expert with so many rows: those of whole clusters of rows first.
template <class Shape>
struct ExpertTiles {
  int32_t rows;     // tiles of rows
  int32_t columns;  // tiles of columns of y
  int32_t split;    // 1: another, of one block's rows at most, whose columns the blocks share

  HEADRACE_HOST_DEVICE static constexpr ExpertTiles of(int32_t row_count, int32_t columns) {
    const int32_t rest = row_count % Shape::kClusterRows;
    const bool shares = Shape::kBlocks > 1 && rest > 0 && rest <= Shape::kRows;
    return {row_count / Shape::kClusterRows + (rest > 0 && !shares ? 1 : 0), columns,
            shares ? 1 : 0};
  }
  HEADRACE_HOST_DEVICE constexpr int32_t count() const {
    return rows * columns + split * ((columns + Shape::kBlocks - 1) / Shape::kBlocks);
  }
};

// What block `rank` of a cluster has of a tile: rows of the expert from `row` on, a tile of
// columns. There may be none of either.
struct GroupedTile {
  int32_t row, column;
  bool split;  // the other block has another tile of W
};
template <class Shape>
HEADRACE_HOST_DEVICE constexpr GroupedTile grouped_tile(const ExpertTiles<Shape>& tiles,
                                                        int32_t index, int32_t rank) {
  const int32_t whole = tiles.rows * tiles.columns;
  if (index >= whole) {
    return {tiles.rows * Shape::kClusterRows, Shape::kBlocks * (index - whole) + rank, true};
  }
  // Rows first: tiles that run at a time share W.
  const WgmmaTile tile = wgmma_tile({tiles.rows, tiles.columns}, index);
  return {tile.row * Shape::kClusterRows + rank * Shape::kRows, tile.column, false};
}

// The expert whose tile `index` is: tiles [first_tiles[e], first_tiles[e + 1]) are expert e's.
// REQUIRES: index < first_tiles[experts]
HEADRACE_HOST_DEVICE constexpr int32_t expert_of_tile(const int32_t* first_tiles, int32_t experts,
                                                      int32_t index) {
  int32_t low = 0;
  for (int32_t high = experts; high - low > 1;) {
    const int32_t middle = (low + high) / 2;
    if (first_tiles[middle] <= index) {
      low = middle;
    } else {
      high = middle;
    }
  }
  return low;
}

}  // namespace headrace
