#include "ops/linear_cpu_plan.h"

namespace headrace {
namespace {

// Multiply-adds below which waking a thread costs more (about 2 us) than it saves.
constexpr int64_t kSerialWork = 100'000;
// Rows of x that flat tiles of a group of weights pass over at once. 126 rows of 576 columns are
// 145 KB of narrow blocks and stay in L2 while the next groups come.
constexpr int64_t kFlatRowBlock = 126;

LinearMethod method_of(int64_t m, const LinearCpuIsa& isa) {
  return isa.panels != nullptr && m >= isa.panels->rows_from ? LinearMethod::kPanels
                                                             : LinearMethod::kFlat;
}

LinearDeal deal_of(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  if (threads == 1 || size.m * size.n * size.k < kSerialWork) return LinearDeal::kOneThread;
  return size.m <= isa.tile_rows ? LinearDeal::kShares : LinearDeal::kPieces;
}

}  // namespace

LinearCpuPlan plan_linear_cpu(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  const LinearDeal deal = deal_of(size, isa, threads);
  if (method_of(size.m, isa) == LinearMethod::kPanels) {
    return {.method = LinearMethod::kPanels,
            .deal = deal,
            .tile_rows = isa.panels->tile_rows,
            .row_unit = isa.panels->row_unit,
            .row_block = isa.panels->row_block};
  }
  return {.method = LinearMethod::kFlat,
          .deal = deal,
          .tile_rows = isa.tile_rows,
          .row_unit = 1,
          .row_block = kFlatRowBlock / isa.tile_rows * isa.tile_rows};
}

}  // namespace headrace
