#include "ops/linear/cpu_plan.h"

namespace headrace {
namespace {

// Multiply-adds below which waking a thread costs more (about 2 us) than it saves.
constexpr int64_t kSerialWork = 100'000;
// Most rows of x that flat tiles of a group of weights pass over at once. 132 rows of 576 columns
// are 152 KB of narrow blocks and stay in L2 while the next groups come.
constexpr int64_t kFlatRowBlock = 132;

// Weights that every thread may read for its own rows. What is larger comes from memory once a
// thread: 1.2B shapes on AMX lost a quarter.
constexpr int64_t kSharedWeightsMax = 2 << 20;

LinearMethod method_of(int64_t m, const LinearCpuIsa& isa) {
  return isa.panels != nullptr && m >= isa.panels->rows_from ? LinearMethod::kPanels
                                                             : LinearMethod::kFlat;
}

LinearDeal deal_of(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  if (threads == 1 || size.m * size.n * size.k < kSerialWork) return LinearDeal::kOneThread;
  if (isa.panels != nullptr && size.m >= int64_t{threads} * isa.panels->share_rows &&
      size.n * size.k <= kSharedWeightsMax) {
    return LinearDeal::kRowShares;
  }
  return size.m <= isa.tile_rows ? LinearDeal::kShares : LinearDeal::kPieces;
}

// Rows of x in a block, at most `block_max`: all blocks are nearly equal, because one of a few rows
// costs as much unpacking as any.
int64_t row_block_of(int64_t m, int64_t tile_rows, int64_t block_max) {
  const int64_t tiles = (m + tile_rows - 1) / tile_rows, tiles_max = block_max / tile_rows;
  const int64_t blocks = (tiles + tiles_max - 1) / tiles_max;
  return (tiles + blocks - 1) / blocks * tile_rows;
}

}  // namespace

LinearCpuPlan plan_linear_cpu(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  const LinearDeal deal = deal_of(size, isa, threads);
  if (method_of(size.m, isa) == LinearMethod::kPanels) {
    return {.method = LinearMethod::kPanels,
            .deal = deal,
            .tile_rows = isa.panels->tile_rows,
            .row_block = row_block_of(size.m, isa.panels->tile_rows, isa.panels->row_block),
            .floats = isa.panels->floats};
  }
  return {.method = LinearMethod::kFlat,
          .deal = deal,
          .tile_rows = isa.tile_rows,
          .row_block = row_block_of(size.m, isa.tile_rows, kFlatRowBlock)};
}

}  // namespace headrace
