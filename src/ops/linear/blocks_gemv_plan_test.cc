// Cuts of packed weights: every group has one thread block, which finds room for what it keeps.
#include <gtest/gtest.h>

#include <string>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_gemv.h"
#include "ops/linear/segment_fixture.h"
#include "ops/packing/pack_blocks.h"

namespace headrace::blocks_gemv_plan_test {
namespace {

constexpr int32_t kMultiprocessors = 132;
constexpr int64_t kSharedOfABlock = 227 << 10;

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
              plan_blocks_gemv(m, k, segment_of(type, groups), kMultiprocessors);
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
          const int64_t sums = int64_t{2} * plan.round_groups * kBlocksGemvWarps * 16 * m * 4;
          const int64_t ring = kBlocksGemvWarps * plan.stages * stage_bytes(type);
          EXPECT_GE(plan.shared_bytes, ring + m * plan.x_stride + sums);
          EXPECT_LE(plan.shared_bytes, kSharedOfABlock - 1024);
        }
      }
    }
  }
}

TEST(BlocksGemvPlan, OfWholeStagesAlone) {
  EXPECT_EQ(plan_blocks_gemv(1, 576, segment_of(DType::kQ4_0, 10), kMultiprocessors).blocks, 0);
  EXPECT_EQ(plan_blocks_gemv(1, 640, segment_of(DType::kQ8_0, 10), kMultiprocessors).blocks, 10);
  EXPECT_EQ(plan_blocks_gemv(1, 640, segment_of(DType::kQ4_0, 10), kMultiprocessors).blocks, 0);
}

}  // namespace
}  // namespace headrace::blocks_gemv_plan_test
