#include <algorithm>

#include "ops/linear/resident.h"
#include "ops/linear/resident_layout.h"

namespace headrace {
namespace {

constexpr int64_t kSharedMax = 227
                               << 10;  // of a block, and with 1 KB each of all of a multiprocessor
constexpr int32_t kSizes[] = {16, 32, 64};

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

int64_t shared_bytes(const FusedProduct& product, int64_t rows, int64_t columns) {
  const auto k = static_cast<int>(product.k);
  const int64_t tile = (rows + columns) * resident_row_bytes(k);
  const int64_t sums = 4 * kResidentWarps * rows * (columns + kResidentPad);
  const int64_t norm = 4 * (kResidentWarps * rows + product.k);  // squares, the norm's weights
  return std::max(tile, sums) + (product.normed ? norm : 0);
}

// A block that leaves room for one of the next kernel, so that its W may come meanwhile.
constexpr int64_t kSharedOfHalf = 113 << 10;

// Bytes that the busiest multiprocessor asks for. W counts half where it comes while kernels before
// this one end, and double where it has to wait for them to leave; a round of blocks that has to
// wait for the one before starts anew.
int64_t cost_of(const FusedProduct& product, const ResidentPlan& plan, int32_t sm_count) {
  constexpr int64_t kAnotherRound = 64 << 10;
  const int64_t blocks = int64_t{plan.row_tiles} * plan.column_tiles;
  const int64_t share = divided_up(blocks, sm_count);
  const int64_t at_a_time = (kSharedMax + 1024) / (plan.shared_bytes + 1024);
  const int64_t rounds = divided_up(share, at_a_time);
  const int64_t rows = std::min<int64_t>(plan.tile_rows, product.m);
  const int64_t weight = plan.tile_columns * (plan.shared_bytes > kSharedOfHalf ? 4 : 1);
  return share * product.k * (2 * rows + weight) + (rounds - 1) * kAnotherRound;
}

}  // namespace

ResidentPlan plan_resident(const FusedProduct& product, int32_t sm_count) {
  const int64_t outputs = product.gated ? product.n / 2 : product.n;
  ResidentPlan best;
  int64_t least = INT64_MAX;
  for (const int32_t rows : kSizes) {
    for (const int32_t columns : kSizes) {
      if (rows * columns > kResidentTileMax) continue;
      const ResidentPlan plan = {.tile_rows = rows,
                                 .tile_columns = columns,
                                 .row_tiles = static_cast<int32_t>(divided_up(product.m, rows)),
                                 .column_tiles = static_cast<int32_t>(
                                     divided_up(outputs, product.gated ? columns / 2 : columns)),
                                 .shared_bytes = static_cast<int32_t>(std::min<int64_t>(
                                     shared_bytes(product, rows, columns), kSharedMax + 1))};
      if (plan.shared_bytes > kSharedMax) continue;
      const int64_t cost = cost_of(product, plan, sm_count);
      if (cost >= least) continue;
      least = cost;
      best = plan;
    }
  }
  return best;
}

}  // namespace headrace
