// Where everything lies in the product of wgmma.h: which thread block computes which tile,
// where the copy engine leaves a box in shared memory, which element of a tile is which sum of
// which thread. The kernel and a test that multiplies by these numbers on a CPU include it.
#pragma once

#include <cstdint>

#include "gpu/operand_layout.h"

namespace headrace {

inline constexpr int kWgmmaStep = 64;                  // columns of K at a time
inline constexpr int kWgmmaRowBytes = 2 * kWgmmaStep;  // of a box in shared memory
inline constexpr int kWgmmaRows = 128;                 // of x, a block's tile
inline constexpr int kWgmmaGroups = 2;                 // warpgroups that multiply, 64 rows each
inline constexpr int kWgmmaGroupRows = 64;             //
inline constexpr int kWgmmaBlocks = 2;                 // of a cluster: rows after rows of x
inline constexpr int kWgmmaClusterRows = kWgmmaBlocks * kWgmmaRows;
inline constexpr int kWgmmaBoxColumns = 64;  // of y, in a box on its way out
inline constexpr int kWgmmaBoxBytes = kWgmmaGroupRows * kWgmmaRowBytes;
inline constexpr int kWgmmaBoxes = 2;  // of a warpgroup, in shared memory

// A block's tile of kTile rows of W, half of them copied by each block of the cluster for both. A
// gated tile is half gate rows, half up rows.
template <int kTile>
struct WgmmaShape {
  static constexpr int kHalfRows = kTile / 2;
  static constexpr int kHalfBytes = kHalfRows * kWgmmaRowBytes;
  static constexpr int kXBytes = kWgmmaRows * kWgmmaRowBytes;
  static constexpr int kStageBytes = kXBytes + 2 * kHalfBytes;  // x, then W's two halves
  static constexpr int kStages = (192 << 10) / kStageBytes;     // 4 of 48 KB, 6 of 32 KB
  static constexpr int kRingBytes = kStages * kStageBytes;
  static constexpr int kOutBytes = kWgmmaGroups * kWgmmaBoxes * kWgmmaBoxBytes;
  static constexpr int kSums = kTile / 2;  // of a thread
  static constexpr int kThreads = 128 * (1 + kWgmmaGroups);
};

// Offsets in a stage of the ring: of the half of W that block `rank` copies, and of what a
// warpgroup multiplies from column `k` of the step on. Both operands lie as wgmma_operand() says.
HEADRACE_HOST_DEVICE constexpr gpu::OperandLayout wgmma_operand() {
  return gpu::OperandLayout::of(kWgmmaRowBytes, 8 * kWgmmaRowBytes, 16);
}
template <int kTile>
HEADRACE_HOST_DEVICE constexpr int wgmma_half_offset(int rank) {
  return WgmmaShape<kTile>::kXBytes + rank * WgmmaShape<kTile>::kHalfBytes;
}
HEADRACE_HOST_DEVICE constexpr int wgmma_x_offset(int group, int k) {
  return group * kWgmmaGroupRows * kWgmmaRowBytes + 2 * k;
}
template <int kTile>
HEADRACE_HOST_DEVICE constexpr int wgmma_weight_offset(int k) {
  return WgmmaShape<kTile>::kXBytes + 2 * k;
}

// Byte `byte` of row `row` where rows have 128 bytes and the copy engine has swizzled them: in
// patterns of 8 rows, 16-byte units are exchanged by XOR with the row.
HEADRACE_HOST_DEVICE constexpr int swizzled_128(int row, int byte) {
  return row * kWgmmaRowBytes + (byte ^ (row % 8 * 16));
}

// The first of the sums of a thread (of 128) of a warpgroup: sum 4 j + 2 half + i is 8 half rows
// and 8 j + i columns further.
struct WgmmaSumPlace {
  int row, column;
};
HEADRACE_HOST_DEVICE constexpr WgmmaSumPlace wgmma_sum_place(int thread) {
  return {thread / 32 * 16 + thread % 32 / 4, thread % 4 * 2};
}

// First row of x, and of y, of a warpgroup of a block.
HEADRACE_HOST_DEVICE constexpr int32_t wgmma_row(int32_t tile_row, int32_t rank, int32_t group) {
  return tile_row * kWgmmaClusterRows + rank * kWgmmaRows + group * kWgmmaGroupRows;
}
// First row of W of the half that block `rank` of a cluster copies for tile column `column`.
// `second_half`: rows of W from the first half of a tile to the second (gated: from gate to up).
HEADRACE_HOST_DEVICE constexpr int32_t wgmma_weight_row(int32_t column, int32_t out_columns,
                                                        int32_t second_half, int32_t rank) {
  return column * out_columns + rank * second_half;
}

// The tiles of y in the order in which clusters take them: kWgmmaPatch cluster tiles of rows, all
// columns of those, then the next; what 66 clusters read at a time, some 8 x 8 tiles, is shared in
// the L2 cache.
inline constexpr int32_t kWgmmaPatch = 8;

struct WgmmaGrid {
  int32_t rows, columns;  // in cluster tiles (256 rows of y), in tiles

  HEADRACE_HOST_DEVICE constexpr int32_t tiles() const { return rows * columns; }
};
struct WgmmaTile {
  int32_t row, column;
};
HEADRACE_HOST_DEVICE constexpr WgmmaTile wgmma_tile(WgmmaGrid grid, int32_t index) {
  const int32_t first = index / (kWgmmaPatch * grid.columns) * kWgmmaPatch;
  const int32_t rows = grid.rows - first < kWgmmaPatch ? grid.rows - first : kWgmmaPatch;
  const int32_t within = index - first * grid.columns;
  return {first + within % rows, within / rows};
}

}  // namespace headrace
