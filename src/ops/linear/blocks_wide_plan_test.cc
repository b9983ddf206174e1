// Cuts of packed weights for some dozens of rows: two thread blocks find room on a multiprocessor,
// and each step of K is multiplied by one of those that share it.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>
#include <vector>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_wide.h"
#include "ops/linear/segment_fixture.h"
#include "ops/linear/wide_layout.h"
#include "ops/packing/pack_blocks.h"
#include "ops/packing/random_matrix.h"

namespace headrace::blocks_wide_plan_test {
namespace {

constexpr int32_t kMultiprocessors = 132;

TEST(BlocksWidePlan, TwoBlocksFindRoomOnAMultiprocessor) {
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    for (const int32_t tiles : {2, 4, 8}) {
      for (const int32_t steps : {1, 2, 9, 16, 56}) {
        for (const int64_t groups : {1, 8, 9, 256, 1792}) {
          SCOPED_TRACE(std::string(dtype_name(type)) + " tiles " + std::to_string(tiles) +
                       " steps " + std::to_string(steps) + " groups " + std::to_string(groups));
          const BlocksWideRows rows{.tiles = tiles, .x_blocks = 1, .steps = steps};
          const BlocksWidePlan plan =
              plan_blocks_wide(rows, segment_of(type, groups), kMultiprocessors);
          EXPECT_EQ(plan.blocks, (groups + 7) / 8);
          // Each of those that share K has two steps, but for the last of them.
          const int32_t share = (steps + plan.splits - 1) / plan.splits;
          EXPECT_TRUE(plan.splits == 1 || share >= 2) << plan.splits;
          EXPECT_TRUE(plan.splits == 1 || plan.blocks * plan.splits <= 2 * kMultiprocessors);
          EXPECT_GE(plan.stages, 2);
          EXPECT_LE(plan.stages, kWideStagesMax);
          EXPECT_GE(plan.x_stages, 2);
          EXPECT_LE(plan.x_stages, kWideStagesMax);
          // Sums of 128 rows of W, in rows of 132, lie where the rings were.
          EXPECT_GE(plan.shared_bytes, 8 * tiles * 132 * 4);
          EXPECT_LE(plan.shared_bytes, 112 << 10);
        }
      }
    }
  }
}

TEST(BlocksWidePlan, TheLastStepIsWhole) {
  for (int32_t chunks = kWideStepChunks; chunks < 40; ++chunks) {
    const int32_t steps = (chunks + kWideStepChunks - 1) / kWideStepChunks;
    std::vector<int> counted(static_cast<size_t>(chunks));
    for (int32_t step = 0; step < steps; ++step) {
      for (int32_t i = 0; i < kWideStepChunks; ++i) {
        const int32_t chunk = wide_step_first_chunk(step, chunks) + i;
        ASSERT_GE(chunk, 0);
        ASSERT_LT(chunk, chunks);
        if (chunk >= step * kWideStepChunks) ++counted[static_cast<size_t>(chunk)];
      }
    }
    EXPECT_EQ(std::count(counted.begin(), counted.end(), 1), chunks) << chunks;
  }
}

}  // namespace
}  // namespace headrace::blocks_wide_plan_test
