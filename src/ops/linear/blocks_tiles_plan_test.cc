// Cuts of packed weights for many rows: every tile is some cluster's once, a block finds room on a
// multiprocessor, each step of K is multiplied by one of those that share it.
#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_tiles.h"
#include "ops/linear/segment_fixture.h"
#include "ops/linear/tiles_layout.h"
#include "ops/packing/pack_blocks.h"
#include "ops/packing/random_matrix.h"

namespace headrace::blocks_tiles_plan_test {
namespace {

constexpr int32_t kMultiprocessors = 132;

void check(const BlocksWideRows& rows, const LinearWeight::Segment& segment) {
  const BlocksTilesPlan plan = plan_blocks_tiles(rows, segment, kMultiprocessors);
  const int64_t of_unit = int64_t{8} * plan.sharers;
  EXPECT_EQ(plan.units, (segment.group_count + of_unit - 1) / of_unit * rows.x_blocks);
  // Each of those that share K has two steps, but for the last of them; they have one tile, and all
  // blocks run at once.
  const int32_t share = (rows.steps + plan.splits - 1) / plan.splits;
  EXPECT_TRUE(plan.splits == 1 || (share >= 2 && plan.clusters == plan.units));
  EXPECT_GE(plan.clusters, 1);
  EXPECT_LE(plan.clusters, plan.units);
  EXPECT_LE(plan.clusters * plan.sharers * plan.splits, kMultiprocessors);
  EXPECT_LE(plan.sharers * plan.splits, kTilesClusterMax);
  EXPECT_GE(plan.stages, 2);
  EXPECT_LE(plan.stages, kWideStagesMax);
  EXPECT_GE(plan.x_stages, 4);
  EXPECT_LE(plan.x_stages, kTilesXStagesMax);
  if (plan.splits > 1) {  // sums lie where the rings were
    EXPECT_GE(plan.shared_bytes, 8 * rows.tiles * kTilesPitch * 4);
  }
  EXPECT_LE(plan.shared_bytes, kTilesSharedMax);
}

TEST(BlocksTilesPlan, ABlockFindsRoomOnAMultiprocessor) {
  for (const DType type : kWeightTypes) {
    if (!is_quantised(type)) continue;
    for (const int32_t tiles : {16, 32}) {
      for (const int32_t x_blocks : {1, 2, 7, 8}) {
        for (const int32_t steps : {1, 2, 9, 16, 56}) {
          for (const int64_t groups : {1, 16, 17, 256, 1792}) {
            SCOPED_TRACE(std::string(dtype_name(type)) + " tiles " + std::to_string(tiles) +
                         " x blocks " + std::to_string(x_blocks) + " steps " +
                         std::to_string(steps) + " groups " + std::to_string(groups));
            const BlocksWideRows rows{.tiles = tiles, .x_blocks = x_blocks, .steps = steps};
            check(rows, segment_of(type, groups));
          }
        }
      }
    }
  }
}

TEST(BlocksTilesPlan, EveryUnitComesOnce) {
  for (const int32_t of_weight : {1, 3, 24, 112}) {
    for (int32_t x_blocks = 1; x_blocks <= 19; ++x_blocks) {
      std::set<std::pair<int32_t, int32_t>> seen;
      for (int32_t unit = 0; unit < of_weight * x_blocks; ++unit) {
        const BlocksTilesPlace place = tiles_place(unit, of_weight * x_blocks, x_blocks);
        ASSERT_TRUE(place.of_weight >= 0 && place.of_weight < of_weight);
        ASSERT_TRUE(place.of_x >= 0 && place.of_x < x_blocks);
        seen.insert({place.of_weight, place.of_x});
      }
      EXPECT_EQ(std::ssize(seen), of_weight * x_blocks) << of_weight << " x " << x_blocks;
    }
  }
}

}  // namespace
}  // namespace headrace::blocks_tiles_plan_test
