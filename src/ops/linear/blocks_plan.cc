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

BlocksWideRows blocks_wide_rows(int64_t m, const LinearWeight& weight) {
  constexpr int64_t kStepChunksMax = 8;
  BlocksWideRows rows{};
  rows.tiles = m <= 16 ? 2 : m <= 32 ? 4 : 8;
  rows.x_blocks = static_cast<int32_t>((m + 8 * rows.tiles - 1) / (8 * rows.tiles));
  const int64_t steps = (weight.k() / 32 + kStepChunksMax - 1) / kStepChunksMax;
  rows.chunks = static_cast<int32_t>(steps * kStepChunksMax);
  rows.bytes = int64_t{rows.x_blocks} * 8 * rows.tiles * rows.chunks * 64;
  return rows;
}

int64_t blocks_wide_bytes(int64_t m, const LinearWeight& weight) {
  return blocks_wide_rows((m + 63) / 64 * 64, weight).bytes;
}

BlocksWidePlan plan_blocks_wide(const BlocksWideRows& rows, int64_t groups, int32_t sm_count) {
  constexpr int32_t kGroupsOfBlock = 8, kSplitsMax = 8, kSplitChunksMin = 16;
  const auto row_blocks = static_cast<int32_t>((groups + kGroupsOfBlock - 1) / kGroupsOfBlock);
  BlocksWidePlan plan{.blocks = rows.x_blocks * row_blocks, .splits = 1};
  // Two blocks a multiprocessor.
  while (plan.splits < kSplitsMax && rows.chunks / (2 * plan.splits) >= kSplitChunksMin &&
         2 * plan.splits * plan.blocks <= 2 * sm_count) {
    plan.splits *= 2;
  }
  return plan;
}

}  // namespace headrace
