#include <algorithm>
#include <iterator>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/blocks_wide.h"
#include "ops/packing/pack_blocks.h"

namespace headrace {

namespace {

// Of a group's stage in shared memory (packed_stage.cuh).
int64_t stage_bytes(const PackedFormat& format) {
  const int64_t chunks = packed_stage_chunks(format.low_bits);
  const int64_t blocks = 32 * chunks / format.columns;
  return chunks * format.quant_bytes + blocks * (format.half_bytes + format.part_scale_bytes);
}

}  // namespace

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
  BlocksWideRows rows{};
  rows.tiles = m <= 16 ? 2 : m <= 32 ? 4 : 8;
  rows.x_blocks = static_cast<int32_t>((m + 8 * rows.tiles - 1) / (8 * rows.tiles));
  const int64_t chunks = weight.k() / 32;
  rows.steps = static_cast<int32_t>((chunks + kWideStepChunks - 1) / kWideStepChunks);
  // Of a row its numbers and a factor.
  rows.bytes = int64_t{rows.x_blocks} * rows.tiles * (int64_t{rows.steps} * kWideStepBytes + 8 * 4);
  return rows;
}

int64_t blocks_wide_bytes(int64_t m, const LinearWeight& weight) {
  return blocks_wide_rows((m + 63) / 64 * 64, weight).bytes;
}

BlocksWidePlan plan_blocks_wide(const BlocksWideRows& rows, const LinearWeight::Segment& segment,
                                int32_t sm_count) {
  constexpr int32_t kSplitStepsMin = 2;
  // Clusters of 1, 2, 3 ... blocks that find room at once on the 132 multiprocessors of an H200,
  // two blocks on each: groups of 16 and 18 multiprocessors do not divide by all of them.
  constexpr int32_t kClusters[] = {264, 132, 79, 62, 47, 39};
  constexpr int32_t kSharedMax = 112 << 10;  // two blocks a multiprocessor
  const auto row_blocks =
      static_cast<int32_t>((segment.group_count + kBlocksWideWarps - 1) / kBlocksWideWarps);
  BlocksWidePlan plan{.blocks = rows.x_blocks * row_blocks, .splits = 1};
  const auto share = [&](int32_t splits) { return (rows.steps + splits - 1) / splits; };
  for (int32_t splits = 2; splits <= std::ssize(kClusters); ++splits) {
    if (plan.blocks > kClusters[splits - 1] * sm_count / 132) break;
    if (share(splits) < kSplitStepsMin) break;
    if (share(splits) < share(plan.splits)) plan.splits = splits;
  }
  const PackedFormat& format = packed_format_of(segment.dtype);
  const auto stage = static_cast<int32_t>(stage_bytes(format));
  const int32_t parts = 32 * packed_stage_chunks(format.low_bits) / format.part_columns;
  const int32_t scales = parts * 128;   // as lanes share them (wide_scales.cuh)
  constexpr int32_t kMeansBytes = 256;  // of a tile of x, in the first half of each step
  const int32_t x_stage = rows.tiles * ((kWideStepBytes - kMeansBytes) / 2 + kMeansBytes);
  // As many stages of x as leave room for two of W.
  for (plan.x_stages = kWideStagesMax;; --plan.x_stages) {
    const int32_t room = kSharedMax - plan.x_stages * x_stage - kBlocksWideWarps * scales;
    plan.stages = std::min(room / (kBlocksWideWarps * stage), kWideStagesMax);
    if (plan.stages >= 2) break;
  }
  plan.shared_bytes = plan.x_stages * x_stage + kBlocksWideWarps * (plan.stages * stage + scales);
  return plan;
}

BlocksGemvPlan plan_blocks_gemv(int64_t m, int64_t k, const LinearWeight::Segment& segment,
                                int32_t sm_count) {
  // One block a multiprocessor, of this kernel and the next (gemv_plan.cc).
  constexpr int64_t kSharedMax = 226 << 10, kSharedMin = 116 << 10;
  constexpr int64_t kSumsOfRounds = 24 << 10, kStagesMin = 2, kPadding = 128;
  const PackedFormat& format = packed_format_of(segment.dtype);
  if (m == 0 || k % (32 * packed_stage_chunks(format.low_bits)) != 0) return {};
  const int64_t stage = kBlocksGemvWarps * stage_bytes(format);
  const int64_t share = (segment.group_count + sm_count - 1) / sm_count;
  const int64_t blocks = (segment.group_count + share - 1) / share;
  const int64_t sums_of_group = 4 * kBlocksGemvWarps * kLinearGroupRows * m;
  const int64_t round = std::clamp<int64_t>(kSumsOfRounds / 2 / sums_of_group, 1, share);
  const int64_t x_sums = format.minimum ? k / format.part_columns * 8 * 4 : 0;
  const int64_t x_stride = 2 * k + 64;  // rows side by side begin in other banks
  const int64_t rest = m * x_stride + x_sums + 2 * round * sums_of_group + kPadding;
  const int64_t stages = std::min<int64_t>((kSharedMax - rest) / stage, kBlocksGemvStagesMax);
  if (rest > kSharedMax || stages < kStagesMin) return {};
  return {.blocks = static_cast<int32_t>(blocks),
          .share = static_cast<int32_t>(segment.group_count / blocks),
          .blocks_with_more = static_cast<int32_t>(segment.group_count % blocks),
          .round_groups = static_cast<int32_t>(round),
          .stages = static_cast<int32_t>(stages),
          .x_stride = static_cast<int32_t>(x_stride),
          .shared_bytes = static_cast<int32_t>(std::max(stages * stage + rest, kSharedMin))};
}

}  // namespace headrace
