// Where an adapter's factors lie on a GPU, in the order in which the kernels of lora_linear_cuda.cu
// read them: what a lane of a warp gives to mma.m16n8k16 as its 16-row side (gpu/mma.cuh) lies in
// 16 bytes, and what a warp reads at once lies side by side. The kernels, what fills the slots
// (lora_slot.cc) and a test include it. Places count elements; ranks are padded to whole tiles,
// with zeros.
//
// A [R, K] is cut into tiles of 16 ranks by 32 columns, which two products take: of a tile's row a
// lane has 8 columns side by side, as it reads them of x, and gives each product four of them.
// B [N, R] is cut into tiles of 128 rows by 16 ranks, which 8 products take: a lane's sums of all
// of them are 16 columns of y side by side.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

inline constexpr int kLoraTileRanks = 16;
inline constexpr int kLoraColumns = 32;   // of K, of a tile of A
inline constexpr int kLoraOutputs = 128;  // rows of B of a tile
inline constexpr int kLoraLaneItems = 8;  // elements of a lane for one product: 16 bytes of 16 bits
inline constexpr int kLoraProduct = 256;  // elements of 32 lanes
inline constexpr int kLoraAProducts = 2;  // of a tile of A
inline constexpr int kLoraBProducts = 8;  // of a tile of B
inline constexpr int kLoraATile = kLoraTileRanks * kLoraColumns;  // elements
inline constexpr int kLoraBTile = kLoraTileRanks * kLoraOutputs;

HEADRACE_HOST_DEVICE constexpr int64_t lora_tiles(int64_t count, int64_t of) {
  return (count + of - 1) / of;
}
HEADRACE_HOST_DEVICE constexpr int64_t lora_a_elements(int64_t ranks, int64_t columns) {
  return lora_tiles(ranks, kLoraTileRanks) * lora_tiles(columns, kLoraColumns) * kLoraATile;
}
HEADRACE_HOST_DEVICE constexpr int64_t lora_b_elements(int64_t ranks, int64_t outputs) {
  return lora_tiles(ranks, kLoraTileRanks) * lora_tiles(outputs, kLoraOutputs) * kLoraBTile;
}

// Tiles: those of a row of ranks side by side in A, those of the same rows side by side in B.
HEADRACE_HOST_DEVICE constexpr int64_t lora_a_tile(int64_t rank_tile, int64_t column_tile,
                                                   int64_t columns) {
  return (rank_tile * lora_tiles(columns, kLoraColumns) + column_tile) * kLoraATile;
}
HEADRACE_HOST_DEVICE constexpr int64_t lora_b_tile(int64_t output_tile, int64_t rank_tile,
                                                   int64_t rank_tiles) {
  return (output_tile * rank_tiles + rank_tile) * kLoraBTile;
}
HEADRACE_HOST_DEVICE constexpr int lora_lane(int product, int lane) {
  return product * kLoraProduct + lane * kLoraLaneItems;
}

// Element A[rank][column] in a slot.
HEADRACE_HOST_DEVICE constexpr int64_t lora_a_index(int64_t rank, int64_t column, int64_t columns) {
  const int row = static_cast<int>(rank % kLoraTileRanks);
  const int k = static_cast<int>(column % kLoraColumns);
  const int lane = row % 8 * 4 + k / 8;
  const int word = row / 8 + 2 * (k % 4 / 2);  // a0 .. a3
  return lora_a_tile(rank / kLoraTileRanks, column / kLoraColumns, columns) +
         lora_lane(k % 8 / 4, lane) + 2 * word + k % 2;
}

// Element B[output][rank] in a slot of an adapter of `rank_tiles`.
HEADRACE_HOST_DEVICE constexpr int64_t lora_b_index(int64_t output, int64_t rank,
                                                    int64_t rank_tiles) {
  const int n = static_cast<int>(output % kLoraOutputs);
  const int k = static_cast<int>(rank % kLoraTileRanks);
  const int lane = n / 16 * 4 + k % 8 / 2;
  const int word = n % 2 + 2 * (k / 8);
  return lora_b_tile(output / kLoraOutputs, rank / kLoraTileRanks, rank_tiles) +
         lora_lane(n % 16 / 2, lane) + 2 * word + k % 2;
}

// How the columns of K are shared out: each block of threads takes so many tiles, each of its warps
// a part of them, side by side. The order of a row's sums follows from K alone.
inline constexpr int kLoraWarps = 4;
inline constexpr int kLoraThreads = 32 * kLoraWarps;
inline constexpr int kLoraWarpTiles = 8;  // of A, of a warp
inline constexpr int kLoraBlockTiles = kLoraWarps * kLoraWarpTiles;
HEADRACE_HOST_DEVICE constexpr int64_t lora_splits(int64_t columns) {
  return lora_tiles(columns, kLoraColumns * kLoraBlockTiles);
}

}  // namespace headrace
