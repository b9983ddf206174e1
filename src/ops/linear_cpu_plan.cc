#include "ops/linear_cpu_plan.h"

namespace headrace {
namespace {

// Multiply-adds below which waking a thread costs more (about 2 us) than it saves.
constexpr int64_t kSerialWork = 100'000;
// Rows of x a range of row groups passes over at once. 126 rows of 576 columns are 145 KB of narrow
// blocks and stay in L2 while the next groups come.
constexpr int64_t kRowBlock = 126;
// Rows from which unpacking to memory pays: with 16, two flat tiles, both are within 5 %.
constexpr int64_t kPanelsFrom = 17;

LinearMethod method_of(int64_t m, const LinearCpuIsa& isa) {
  return isa.panels != nullptr && m >= kPanelsFrom ? LinearMethod::kPanels : LinearMethod::kFlat;
}

LinearDeal deal_of(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  if (threads == 1 || size.m * size.n * size.k < kSerialWork) return LinearDeal::kOneThread;
  return size.m <= isa.tile_rows ? LinearDeal::kShares : LinearDeal::kPieces;
}

}  // namespace

LinearCpuPlan plan_linear_cpu(const LinearCpuSize& size, const LinearCpuIsa& isa, int threads) {
  const LinearMethod method = method_of(size.m, isa);
  const int32_t tile_rows = method == LinearMethod::kPanels ? isa.panels->tile_rows : isa.tile_rows;
  return {.method = method,
          .deal = deal_of(size, isa, threads),
          .tile_rows = tile_rows,
          .row_block = kRowBlock / tile_rows * tile_rows};
}

}  // namespace headrace
