#include <algorithm>
#include <iterator>

#include "base/round_up.h"
#include "ops/linear/blocks.h"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/tiles_layout.h"
#include "ops/packing/pack_blocks.h"

namespace headrace {

namespace {

// Of a group's stage in shared memory (packed_stage.cuh).
int64_t stage_bytes(const PackedFormat& format) {
  const int64_t chunks = packed_stage_chunks(format.low_bits);
  const int64_t blocks = 32 * chunks / format.columns;
  return chunks * format.quant_bytes + blocks * (format.half_bytes + format.part_scale_bytes);
}

// Scales of a stage of each of a block's warps, as its lanes share them (wide_scales.cuh).
int32_t shared_scale_bytes(const PackedFormat& format) {
  const int32_t parts = 32 * packed_stage_chunks(format.low_bits) / format.part_columns;
  return kBlocksWideWarps * parts * 128;
}

// Of K.
int32_t wide_steps(const LinearWeight& weight) {
  const int64_t chunks = weight.k() / 32;
  return static_cast<int32_t>((chunks + kWideStepChunks - 1) / kWideStepChunks);
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
  rows.steps = wide_steps(weight);
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
  const int32_t scales = shared_scale_bytes(format);
  constexpr int32_t kMeansBytes = 256;  // of a tile of x, in the first half of each step
  const int32_t x_stage = rows.tiles * ((kWideStepBytes - kMeansBytes) / 2 + kMeansBytes);
  // As many stages of x as leave room for two of W.
  for (plan.x_stages = kWideStagesMax;; --plan.x_stages) {
    const int32_t room = kSharedMax - plan.x_stages * x_stage - scales;
    plan.stages = std::min(room / (kBlocksWideWarps * stage), kWideStagesMax);
    if (plan.stages >= 2) break;
  }
  plan.shared_bytes = plan.x_stages * x_stage + kBlocksWideWarps * plan.stages * stage + scales;
  return plan;
}

namespace {

// How tiles are dealt: `sharers` blocks of a cluster have the same rows of x, `splits` such share
// the K of their tiles.
struct TileCut {
  int32_t sharers, splits;
  int32_t units;     // of `sharers` tiles
  int32_t clusters;  // that go through them
  double time;       // us, as measured on an H200
};

// Clusters of 1, 2, 3 ... blocks that find room at once on the 132 multiprocessors of an H200, a
// block on each: groups of 16 and 18 multiprocessors do not divide by all of them.
int32_t clusters_at_once(int32_t blocks, int32_t sm_count) {
  constexpr int32_t kClusters[] = {132, 66, 39, 31, 23, 19, 15, 15};
  return std::max(kClusters[blocks - 1] * sm_count / 132, 1);
}

TileCut cut_tiles(int64_t weight_rows, const BlocksWideRows& rows, int32_t sm_count) {
  // A step of K, the end of a tile, sums that meet.
  const double of_step = rows.tiles == 16 ? 1.7 : 2.8;
  constexpr double kOfTile = 1.5, kOfMeeting = 3.0, kUnshared = 1.2;
  TileCut best{};
  for (const int32_t sharers : {2, 1}) {
    const double step = sharers == 1 ? kUnshared * of_step : of_step;
    const int64_t of_unit = int64_t{sharers} * kTilesWeightRows;
    const auto units = static_cast<int32_t>((weight_rows + of_unit - 1) / of_unit * rows.x_blocks);
    for (int32_t splits = 1; sharers * splits <= kTilesClusterMax; ++splits) {
      const int32_t at_once = clusters_at_once(sharers * splits, sm_count);
      const int32_t share = (rows.steps + splits - 1) / splits;
      if (splits > 1 && (units > at_once || share < 2)) break;
      const int32_t rounds = (units + at_once - 1) / at_once;
      const double time = rounds * (share * step + kOfTile) + (splits > 1 ? kOfMeeting : 0.0);
      if (best.units == 0 || time < best.time) {
        best = {sharers, splits, units, std::min(units, at_once), time};
      }
    }
  }
  return best;
}

// Of 8 rows: their numbers and a factor each.
int64_t staged_tile_bytes(const LinearWeight& weight) {
  return int64_t{wide_steps(weight)} * tiles_step_bytes(1) + 8 * 4;
}

}  // namespace

int64_t blocks_tiles_slab(const LinearWeight& weight) {
  constexpr int64_t kBytesMax = 64 << 20, kRows = 256, kRowsMax = 2048;
  return std::clamp(kBytesMax / (2 * weight.k()) / kRows * kRows, kRows, kRowsMax);
}

BlocksWideRows blocks_tiles_rows(int64_t m, const LinearWeight& weight, int32_t sm_count) {
  const auto of = [&](int32_t tiles) {
    BlocksWideRows rows{};
    rows.tiles = tiles;
    rows.x_blocks = static_cast<int32_t>((m + 8 * tiles - 1) / (8 * tiles));
    rows.steps = wide_steps(weight);
    rows.bytes = staged_tile_bytes(weight) * rows.x_blocks * tiles;
    return rows;
  };
  const BlocksWideRows few = of(16), many = of(32);
  return cut_tiles(weight.n(), few, sm_count).time < cut_tiles(weight.n(), many, sm_count).time
             ? few
             : many;
}

int64_t blocks_tiles_bytes(int64_t m, const LinearWeight& weight) {
  constexpr int64_t kRowsMost = 256;  // of a block, whole
  const int64_t blocks = (std::min(m, blocks_tiles_slab(weight)) + kRowsMost - 1) / kRowsMost;
  return staged_tile_bytes(weight) * blocks * (kRowsMost / 8);
}

BlocksTilesPlan plan_blocks_tiles(const BlocksWideRows& rows, const LinearWeight::Segment& segment,
                                  int32_t sm_count) {
  constexpr int32_t kStagesMin = 2;
  const TileCut cut = cut_tiles(segment.group_count * kLinearGroupRows, rows, sm_count);
  BlocksTilesPlan plan{
      .units = cut.units, .clusters = cut.clusters, .sharers = cut.sharers, .splits = cut.splits};
  const PackedFormat& format = packed_format_of(segment.dtype);
  const auto stage = kBlocksWideWarps * static_cast<int32_t>(stage_bytes(format));
  const int32_t scales = 2 * shared_scale_bytes(format);  // of a stage and the next
  plan.x_stages = std::min((kTilesSharedMax - scales - kStagesMin * stage) / kTilesXStageBytes,
                           kTilesXStagesMax);
  const int32_t x_bytes = plan.x_stages * kTilesXStageBytes;
  plan.stages = std::min((kTilesSharedMax - scales - x_bytes) / stage, kWideStagesMax);
  const int32_t sums = plan.splits > 1 ? 8 * rows.tiles * kTilesPitch * 4 : 0;
  plan.shared_bytes = std::max(x_bytes + plan.stages * stage + scales, sums);
  return plan;
}

BlocksGemvPlan plan_blocks_gemv(const FusedProduct& product, const LinearWeight::Segment& segment,
                                int32_t sm_count) {
  // One block a multiprocessor, of this kernel and the next (gemv_plan.cc); it may have 227 KB.
  constexpr int64_t kSharedMax = (227 << 10) - kBlocksGemvBarrierBytes, kSharedMin = 116 << 10;
  constexpr int64_t kSumsOfRounds = 24 << 10, kStagesMin = 2, kPadding = 128;
  const PackedFormat& format = packed_format_of(segment.dtype);
  const int64_t m = product.m, k = product.k, dealt = product.gated ? 2 : 1;
  if (m == 0 || k % (32 * packed_stage_chunks(format.low_bits)) != 0) return {};
  const int64_t stage = kBlocksGemvWarps * stage_bytes(format);
  const int64_t units = segment.group_count / dealt;
  const int64_t share = divide_up(units, int64_t{sm_count});  // at most
  // Multiprocessors left over would only read less: 46.0 and 45.3 us a layer of an 8B shape.
  const int64_t blocks = std::min(units, int64_t{sm_count});
  const int64_t sums_of_unit = dealt * 4 * kBlocksGemvWarps * kLinearGroupRows * m;
  // Sums of one round after the other: while some warps add them up others may have begun.
  const bool one_round = share * sums_of_unit <= kSumsOfRounds;
  const int64_t round =
      one_round ? share : std::clamp<int64_t>(kSumsOfRounds / 2 / sums_of_unit, 1, share);
  // Beside x: of each part what the kernel says of one row, or sums of eight.
  const int64_t parts = k / format.part_columns;
  const int64_t x_sums = m == 1 ? 8 * parts : format.minimum ? 8 * 4 * parts : 0;
  const int64_t x_stride = 2 * k + 64;  // rows side by side begin in other banks
  // The norm's weights lie where sums of rounds will.
  const int64_t sums =
      std::max((one_round ? 1 : 2) * round * sums_of_unit, product.normed ? 4 * k : 0);
  const int64_t rest = m * x_stride + x_sums + sums + kPadding;
  const int64_t stages = std::min<int64_t>((kSharedMax - rest) / stage, kBlocksGemvStagesMax);
  if (rest > kSharedMax || stages < kStagesMin) return {};
  return {.blocks = static_cast<int32_t>(blocks),
          .share = static_cast<int32_t>(units / blocks),
          .blocks_with_more = static_cast<int32_t>(units % blocks),
          .round_groups = static_cast<int32_t>(dealt * round),
          .stages = static_cast<int32_t>(stages),
          .x_stride = static_cast<int32_t>(x_stride),
          .shared_bytes = static_cast<int32_t>(std::max(stages * stage + rest, kSharedMin))};
}

}  // namespace headrace
