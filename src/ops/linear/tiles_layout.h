// Where blocks_tiles.h keeps rows of x, and which tile comes when; for its kernel, its plan and
// their tests.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"
#include "ops/linear/blocks_tiles.h"

namespace headrace {

inline constexpr int kTilesWeightRows = 128;  // of W, of a block's tile
// Sums of a row of x, when they meet: some floats more than rows, so that columns lie in all banks.
inline constexpr int kTilesPitch = kTilesWeightRows + 4;

// A step of K is kWideStepChunks chunks of 32 columns:
//   [16 columns: 2 kWideStepChunks][tiles of 8 rows][core matrix: 2][8 rows][8 numbers]
// in F16, in the order of wide_rows.cuh. A stage of the ring is some chunks of it.
inline constexpr int kTilesXStageBytes = 16 << 10;
inline constexpr int kTilesXStagesMax = 8;
// Shared memory of a block beside its rings, at most: barriers, factors of rows of x.
inline constexpr int kTilesStaticBytes = 6 << 10;
// Of which a block has 227 KB.
inline constexpr int kTilesSharedMax = (227 << 10) - kTilesStaticBytes;
template <int kTiles>
inline constexpr int kTilesXChunks = kTilesXStageBytes / (512 * kTiles);
HEADRACE_HOST_DEVICE constexpr int32_t tiles_step_bytes(int32_t tiles) {
  return kWideStepChunks * 512 * tiles;
}

// Units that run at the same time have few blocks of x and few rows of W between them, so
// that both are read from the L2 cache: bands of 8 blocks of x, in each all of W.
HEADRACE_HOST_DEVICE constexpr BlocksTilesPlace tiles_place(int32_t unit, int32_t units,
                                                            int32_t x_blocks) {
  constexpr int32_t kBand = 8;
  const int32_t of_band = units / x_blocks * kBand;
  const int32_t band = unit / of_band, in_band = unit % of_band;
  const int32_t left = x_blocks - band * kBand, width = left < kBand ? left : kBand;
  return {in_band / width, band * kBand + in_band % width};
}

}  // namespace headrace
