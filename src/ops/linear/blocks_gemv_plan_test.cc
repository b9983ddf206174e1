// Cuts of packed weights: every group has one thread block, which finds room for what it keeps,
// and every stage of it one warp.
#include <gtest/gtest.h>

#include <algorithm>
#include <map>
#include <string>
#include <utility>
#include <vector>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/blocks_gemv_layout.h"
#include "ops/linear/segment_fixture.h"
#include "ops/packing/pack_blocks.h"
#include "ops/packing/random_matrix.h"

namespace headrace::blocks_gemv_plan_test {
namespace {

constexpr int32_t kMultiprocessors = 132;
constexpr int64_t kSharedOfABlock = 227 << 10;

// Sums of the rounds of a block: of one, or of one and the next.
int64_t sums_bytes(const BlocksGemvPlan& plan, int64_t m, int64_t dealt) {
  const int64_t groups = dealt * (plan.share + (plan.blocks_with_more > 0 ? 1 : 0));
  const int64_t rounds = plan.round_groups < groups ? 2 : 1;
  return rounds * plan.round_groups * kBlocksGemvWarps * 16 * m * 4;
}

int64_t stage_bytes(DType type) {
  const PackedFormat& format = packed_format_of(type);
  const int64_t chunks = packed_stage_chunks(format.low_bits);
  return chunks * format.quant_bytes +
         32 * chunks / format.columns * (format.half_bytes + format.part_scale_bytes);
}

TEST(BlocksGemvPlan, GroupsAreSharedOutAndFindRoom) {
  for (const DType type : {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ2_K, DType::kQ4_K,
                           DType::kQ6_K, DType::kQ4_Z}) {
    for (const int64_t k : {1024, 4096, 14336}) {
      for (const int64_t groups : {1, 64, 132, 133, 256, 384, 1792, 8016}) {
        for (int64_t m = 1; m <= kBlocksGemvRowsMax; ++m) {
          SCOPED_TRACE(std::string(dtype_name(type)) + " K" + std::to_string(k) + " groups " +
                       std::to_string(groups) + " M" + std::to_string(m));
          const BlocksGemvPlan plan =
              plan_blocks_gemv({.m = m, .k = k}, segment_of(type, groups), kMultiprocessors);
          // Half of what a multiprocessor has holds any two stages and sums.
          if (plan.blocks == 0) {
            EXPECT_GT(2 * m * k, kSharedOfABlock / 4);
            continue;
          }
          EXPECT_LE(plan.blocks, kMultiprocessors);
          EXPECT_EQ(int64_t{plan.blocks} * plan.share + plan.blocks_with_more, groups);
          EXPECT_LT(plan.blocks_with_more, plan.blocks);
          EXPECT_GE(plan.stages, 2);
          EXPECT_LE(plan.stages, kBlocksGemvStagesMax);
          EXPECT_GE(plan.x_stride, 2 * k);
          const int64_t sums = sums_bytes(plan, m, 1);
          const int64_t ring = kBlocksGemvWarps * plan.stages * stage_bytes(type);
          EXPECT_GE(plan.shared_bytes, ring + m * plan.x_stride + sums);
          EXPECT_LE(plan.shared_bytes, kSharedOfABlock - kBlocksGemvBarrierBytes);
        }
      }
    }
  }
}

// Whatever K leaves of the last stage of a ring.
TEST(BlocksGemvPlan, NoSizeAsksForMoreThanThereIs) {
  int64_t most = 0;
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    for (int64_t k = 128; k <= 32768; k += 128) {
      for (const int64_t groups : {2, 80, 128, 264, 1792}) {
        for (int64_t m = 1; m <= kBlocksGemvRowsMax; ++m) {
          for (const int options : {0, 1, 2, 3}) {
            const FusedProduct product{
                .m = m, .k = k, .gated = options % 2 == 1, .normed = options / 2 == 1};
            const BlocksGemvPlan plan =
                plan_blocks_gemv(product, segment_of(type, groups), kMultiprocessors);
            most = std::max(most, int64_t{plan.shared_bytes});
          }
        }
      }
    }
  }
  EXPECT_LE(most, kSharedOfABlock - kBlocksGemvBarrierBytes);
  EXPECT_GT(most, kSharedOfABlock - 2048);
}

TEST(BlocksGemvPlan, GatesAndNormsFindRoom) {
  for (const int64_t k : {1024, 4096, 8192}) {
    for (const int64_t groups : {2, 66, 264, 266, 1792}) {
      for (int64_t m = 1; m <= kBlocksGemvRowsMax; ++m) {
        for (const bool normed : {false, true}) {
          SCOPED_TRACE("K" + std::to_string(k) + " groups " + std::to_string(groups) + " M" +
                       std::to_string(m));
          const BlocksGemvPlan plan =
              plan_blocks_gemv({.m = m, .k = k, .gated = true, .normed = normed},
                               segment_of(DType::kQ4_K, groups), kMultiprocessors);
          if (plan.blocks == 0) {
            EXPECT_GT(2 * m * k, kSharedOfABlock / 4);
            continue;
          }
          EXPECT_EQ(2 * (int64_t{plan.blocks} * plan.share + plan.blocks_with_more), groups);
          EXPECT_EQ(plan.round_groups % 2, 0);
          const int64_t sums = sums_bytes(plan, m, 2);
          const int64_t ring = kBlocksGemvWarps * plan.stages * stage_bytes(DType::kQ4_K);
          EXPECT_GE(plan.shared_bytes, ring + m * plan.x_stride + sums);
          if (normed) EXPECT_GE(plan.shared_bytes, ring + m * plan.x_stride + 4 * k);
        }
      }
    }
  }
}

TEST(BlocksGemvTurns, EveryStageOfEveryGroupIsOneWarps) {
  for (const int32_t stages : {1, 4, 9, 16, 56}) {
    for (const int32_t groups : {1, 2, 3, 14, 61}) {
      for (const int32_t round : {1, 2, 12}) {
        std::map<std::pair<int32_t, int32_t>, int> times;  // by group and stage
        for (int32_t warp = 0; warp < kBlocksGemvWarps; ++warp) {
          for (int32_t first = 0; first < groups; first += round) {
            BlocksGemvTurn turn;
            turn.begin(first, std::min(round, groups - first), stages, warp);
            for (; turn.left > 0; turn.skip(1)) {
              ++times[{turn.round_first + turn.group, turn.stage}];
              EXPECT_LT(turn.group, turn.round_groups);
              EXPECT_LT(turn.stage, stages);
            }
          }
        }
        EXPECT_EQ(std::ssize(times), int64_t{stages} * groups);
        for (const auto& [which, count] : times) EXPECT_EQ(count, 1);
      }
    }
  }
}

// What is asked for stage by stage comes in the order in which it is taken, group by group.
TEST(BlocksGemvTurns, WhoSkipsAGroupIsWhereOneStageAtATimeLeads) {
  for (const int32_t stages : {1, 3, 16, 56}) {
    for (int32_t warp = 0; warp < kBlocksGemvWarps; ++warp) {
      BlocksGemvTurn asks, takes;
      asks.begin(0, 7, stages, warp);
      takes.begin(0, 7, stages, warp);
      while (takes.left > 0) {
        const int32_t count = std::min(takes.left, stages - takes.stage);
        for (int32_t i = 0; i < count; ++i) {
          EXPECT_EQ(asks.group, takes.group);
          EXPECT_EQ(asks.stage, takes.stage + i);
          asks.skip(1);
        }
        takes.skip(count);
      }
      EXPECT_EQ(asks.left, 0);
    }
  }
}

TEST(BlocksGemvTurns, GateStandsBesideItsUp) {
  std::vector<int32_t> order;
  for (int32_t i = 0; i < 6; ++i) order.push_back(blocks_gemv_group(i, 6, true));
  EXPECT_EQ(order, (std::vector<int32_t>{0, 3, 1, 4, 2, 5}));
  EXPECT_EQ(blocks_gemv_group(4, 6, false), 4);
}

TEST(BlocksGemvPlan, OfWholeStagesAlone) {
  EXPECT_EQ(
      plan_blocks_gemv({.m = 1, .k = 576}, segment_of(DType::kQ4_0, 10), kMultiprocessors).blocks,
      0);
  EXPECT_EQ(
      plan_blocks_gemv({.m = 1, .k = 640}, segment_of(DType::kQ8_0, 10), kMultiprocessors).blocks,
      10);
  EXPECT_EQ(
      plan_blocks_gemv({.m = 1, .k = 640}, segment_of(DType::kQ4_0, 10), kMultiprocessors).blocks,
      0);
}

}  // namespace
}  // namespace headrace::blocks_gemv_plan_test
