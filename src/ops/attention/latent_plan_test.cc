// How tiles over latents are shared out: every key of every tile once, in order, evenly.
#include "ops/attention/latent_plan.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <set>

#include "base/rng.h"

namespace headrace::latent_plan_test {
namespace {

AttentionPlanShape shape_of(int32_t heads, bool batch_invariant = false) {
  return {.query_heads = heads,
          .kv_heads = 1,
          .head_dim = kLatentKeyDim,
          .sm_count = 132,
          .rows_max = 8192,
          .sequences_max = 256,
          .batch_invariant = batch_invariant,
          .latents = true};
}

std::vector<AttentionTileWork> tiles_of(const std::vector<int32_t>& keys) {
  std::vector<AttentionTileWork> tiles;
  for (const int32_t count : keys) {
    tiles.push_back({.row_first = static_cast<int32_t>(tiles.size()),
                     .row_count = 1,
                     .position = count - 1,
                     .key_last = count,
                     .split_count = 1,
                     .merge = -1});
  }
  return tiles;
}

int64_t steps_of(const AttentionTileWork& tile) {
  return (tile.key_last - tile.key_first + kLatentStepKeys - 1) / kLatentStepKeys;
}

void expect_whole(const AttentionPlanShape& shape, const std::vector<AttentionTileWork>& whole,
                  const LatentWork& work) {
  size_t at = 0;
  std::set<int32_t> partials;
  for (const AttentionTileWork& tile : whole) {
    int32_t key = tile.key_first;
    for (int32_t split = 0; key < tile.key_last; ++split, ++at) {
      ASSERT_LT(at, work.tiles.size());
      const AttentionTileWork& part = work.tiles[at];
      EXPECT_EQ(part.row_first, tile.row_first);
      EXPECT_EQ(part.key_first, key);
      EXPECT_EQ(part.key_first % kLatentStepKeys, tile.key_first % kLatentStepKeys);
      EXPECT_EQ(part.split, split);
      ASSERT_GT(part.key_last, key);
      key = part.key_last;
      if (part.split_count > 1) {
        EXPECT_TRUE(partials.insert(part.partial_first + split).second);
        EXPECT_LT(part.partial_first + split, latent_partials_max(shape));
      }
      if (key == tile.key_last) {
        EXPECT_EQ(part.split_count, split + 1);
      }
    }
  }
  EXPECT_EQ(at, work.tiles.size());
  EXPECT_EQ(work.is_shared, !partials.empty());
  ASSERT_EQ(std::ssize(work.team_first), latent_teams(shape) + 1);
  EXPECT_EQ(work.team_first.front(), 0);
  EXPECT_EQ(work.team_first.back(), std::ssize(work.tiles));
  EXPECT_TRUE(std::is_sorted(work.team_first.begin(), work.team_first.end()));
}

int64_t longest_team(const LatentWork& work) {
  int64_t longest = 0;
  for (size_t t = 0; t + 1 < work.team_first.size(); ++t) {
    int64_t steps = 0;
    for (int32_t i = work.team_first[t]; i < work.team_first[t + 1]; ++i) {
      steps += steps_of(work.tiles[static_cast<size_t>(i)]);
    }
    longest = std::max(longest, steps);
  }
  return longest;
}

TEST(LatentPlan, EveryKeyIsATeams) {
  Rng rng(5);
  for (int round = 0; round < 300; ++round) {
    const AttentionPlanShape shape = shape_of(round % 3 == 0   ? 128
                                              : round % 3 == 1 ? 16
                                                               : 96,
                                              round % 2 == 1);
    std::vector<int32_t> keys(1 + rng.below(round % 5 == 0 ? 2000 : 300));
    const int32_t most = round % 7 == 0 ? 60000 : 900;
    for (int32_t& count : keys) count = 1 + static_cast<int32_t>(rng.below(most));
    const std::vector<AttentionTileWork> whole = tiles_of(keys);
    const LatentWork work = share_latents(shape, whole);
    expect_whole(shape, whole, work);
    EXPECT_TRUE(!shape.batch_invariant || !work.is_shared);
    if (HasFailure()) return;
  }
}

TEST(LatentPlan, TeamsEndTogether) {
  for (const int32_t heads : {16, 128}) {
    const AttentionPlanShape shape = shape_of(heads);
    for (const std::vector<int32_t>& keys :
         {std::vector<int32_t>(64, 8192), std::vector<int32_t>(100, 3000),
          std::vector<int32_t>(1, 65536), [] {
            std::vector<int32_t> skewed(256, 500);
            skewed[0] = 65536;
            return skewed;
          }()}) {
      const std::vector<AttentionTileWork> whole = tiles_of(keys);
      int64_t steps = 0;
      // A tile costs two steps beside its own.
      for (const AttentionTileWork& tile : whole) steps += steps_of(tile) + 2;
      const LatentWork work = share_latents(shape, whole);
      EXPECT_LE(longest_team(work), steps / latent_teams(shape) + 2) << heads << " " << keys.size();
    }
  }
}

TEST(LatentPlan, WithoutWorkThereIsNone) {
  const LatentWork work = share_latents(shape_of(16), {});
  EXPECT_TRUE(work.tiles.empty());
  EXPECT_EQ(std::ssize(work.team_first), 133);
}

}  // namespace
}  // namespace headrace::latent_plan_test
