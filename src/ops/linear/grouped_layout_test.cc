// Every element of y is one tile's, whatever the experts' rows are (grouped_layout.h).
#include "ops/linear/grouped_layout.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <vector>

#include "base/rng.h"
#include "ops/linear/grouped.h"

namespace headrace {
namespace {

using NarrowTiles = GroupedShape<1, 64, 1>;
using FewTiles = GroupedShape<1, 128, 1>;
using ManyTiles = GroupedShape<2, 256, 2>;

// Goes through all tiles as the blocks of a launch do, with tiles of `out` columns of y.
template <class Shape>
void expect_each_element_once(const std::vector<int32_t>& counts, int32_t n_out, int32_t out) {
  const auto experts = static_cast<int32_t>(counts.size());
  const int32_t columns = (n_out + out - 1) / out;
  std::vector<int32_t> starts = {0}, first_tiles = {0};
  for (const int32_t count : counts) {
    starts.push_back(starts.back() + count);
    first_tiles.push_back(first_tiles.back() + ExpertTiles<Shape>::of(count, columns).count());
  }
  std::vector<int> computed(static_cast<size_t>(starts.back()) * static_cast<size_t>(n_out));
  for (int32_t index = 0; index < first_tiles.back(); ++index) {
    const int32_t expert = expert_of_tile(first_tiles.data(), experts, index);
    const auto e = static_cast<size_t>(expert);
    ASSERT_LE(first_tiles[e], index);
    ASSERT_LT(index, first_tiles[e + 1]);
    const auto tiles = ExpertTiles<Shape>::of(counts[e], columns);
    for (int32_t rank = 0; rank < Shape::kBlocks; ++rank) {
      const GroupedTile tile = grouped_tile(tiles, index - first_tiles[e], rank);
      ASSERT_TRUE(!tile.split || counts[e] - tile.row <= Shape::kRows);
      const int32_t last = std::min(tile.row + Shape::kRows, counts[e]);
      for (int32_t row = tile.row; row < last; ++row) {
        for (int32_t c = tile.column * out; c < std::min((tile.column + 1) * out, n_out); ++c) {
          ++computed[static_cast<size_t>(starts[e] + row) * static_cast<size_t>(n_out) +
                     static_cast<size_t>(c)];
        }
      }
    }
  }
  EXPECT_TRUE(std::ranges::all_of(computed, [](int times) { return times == 1; }));
}

template <class Shape>
void expect_all_lists() {
  Rng rng(3);
  std::vector<std::vector<int32_t>> lists = {
      {0},   {1},         {5000}, {0, 0, 700, 0},  std::vector<int32_t>(128, 1),
      {128}, {129, 0, 1}, {256},  {257, 383, 384}, {385, 64, 65, 127, 63}};
  for (int i = 0; i < 20; ++i) {
    std::vector<int32_t>& list = lists.emplace_back(1 + rng.below(40));
    for (int32_t& count : list) count = static_cast<int32_t>(rng.below(1 + rng.below(600)));
  }
  for (const std::vector<int32_t>& list : lists) {
    for (const int32_t n_out : {8, 72, 128, 136, 392}) {
      expect_each_element_once<Shape>(list, n_out, Shape::kTile);
      expect_each_element_once<Shape>(list, n_out, Shape::kHalfRows);
    }
  }
}

TEST(GroupedLayout, EachElementIsOneTiles) {
  expect_all_lists<NarrowTiles>();
  expect_all_lists<FewTiles>();
  expect_all_lists<ManyTiles>();
}

// What cluster of blocks reads twice is what the other block has, too.
TEST(GroupedLayout, BlocksOfAClusterShareWeightsOrRows) {
  for (const int32_t count : {1, 128, 129, 256, 257, 400, 900}) {
    const auto tiles = ExpertTiles<ManyTiles>::of(count, 5);
    for (int32_t i = 0; i < tiles.count(); ++i) {
      const GroupedTile first = grouped_tile(tiles, i, 0), second = grouped_tile(tiles, i, 1);
      EXPECT_EQ(first.split, second.split);
      EXPECT_EQ(first.split, first.row == second.row);
      EXPECT_EQ(first.split, first.column != second.column);
    }
  }
}

// Copies of rows and of boxes of W start patterns of the swizzle.
TEST(GroupedLayout, StagesAreWholePatterns) {
  const auto expect_patterns = []<class Shape>(Shape) {
    EXPECT_EQ(Shape::kXBytes % 1024, 0);
    EXPECT_EQ(Shape::kHalfBytes % 1024, 0);
    EXPECT_EQ(Shape::kRowsOfThread * Shape::kRowThreads * 16, Shape::kXBytes);
    EXPECT_GE(Shape::kStages, 4);
  };
  expect_patterns(NarrowTiles());
  expect_patterns(FewTiles());
  expect_patterns(ManyTiles());
}

TEST(GroupedPlan, TilesFollowTheRowsOfAnExpert) {
  DeviceTraits h200{.kind = DeviceKind::kCuda, .compute_capability = 90, .sm_count = 132};
  const auto plan = [&](int64_t tokens, int64_t n) {
    return plan_grouped({.rows = 8 * tokens, .experts = 128, .n = n}, h200);
  };
  EXPECT_EQ(plan(1, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(2, 1536), GroupedTiles::kNarrow);
  EXPECT_EQ(plan(64, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(256, 2048), GroupedTiles::kFew);
  EXPECT_EQ(plan(1024, 1536), GroupedTiles::kMany);
  h200.batch_invariant = true;
  EXPECT_EQ(plan(2, 1536), GroupedTiles::kFew);
  EXPECT_EQ(plan(8192, 1536), GroupedTiles::kFew);
}

}  // namespace
}  // namespace headrace
