#include <algorithm>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_wide.h"

namespace headrace {

int64_t unpacked_rows(const LinearWeight& weight) {
  // What is unpacked lies in the L2 cache when it is multiplied.
  constexpr int64_t kBytesMax = 32 << 20;
  // Of fewer the library's products are slow.
  constexpr int64_t kRowsMin = 2048;
  const int64_t rows = kBytesMax / (2 * weight.k()) / kRowsMin * kRowsMin;
  return std::min(std::max(rows, kRowsMin), weight.n());
}

int64_t unpacked_bytes(const LinearWeight& weight) {
  return 2 * unpacked_rows(weight) * weight.k();
}

int64_t arranged_bytes(int64_t m, const LinearWeight& weight) {
  const int64_t units = (std::min(m, kBlocksSlabRows) + kArrangedRows - 1) / kArrangedRows;
  const int64_t rows = units * kArrangedRows;
  return rows * weight.k() * 2 + rows / 8 * (weight.k() / 32) * kArrangedSumBytes;
}

BlocksWidePlan plan_blocks_wide(int64_t m, int64_t groups, int64_t chunks, int32_t sm_count) {
  constexpr int32_t kGroupsOfBlock = 8, kSplitsMax = 8, kSplitChunksMin = 16;
  BlocksWidePlan plan{};
  plan.tiles = m <= 16 ? 2 : m <= 32 ? 4 : 8;
  plan.x_blocks = static_cast<int32_t>((m + 8 * plan.tiles - 1) / (8 * plan.tiles));
  plan.row_blocks = static_cast<int32_t>((groups + kGroupsOfBlock - 1) / kGroupsOfBlock);
  plan.splits = 1;
  // Two blocks a multiprocessor.
  while (plan.splits < kSplitsMax && chunks / (2 * plan.splits) >= kSplitChunksMin &&
         2 * plan.splits * plan.x_blocks * plan.row_blocks <= 2 * sm_count) {
    plan.splits *= 2;
  }
  return plan;
}

}  // namespace headrace
