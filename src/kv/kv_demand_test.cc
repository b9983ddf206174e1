#include "kv/kv_demand.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "kv/sequence_blocks.h"

namespace headrace::kv_demand_test {
namespace {

TEST(KvDemand, CountsWholePagesOfEveryGroup) {
  const std::vector<KvGroupSpec> groups = {{.block_tokens = 16}, {.block_tokens = 8}};
  EXPECT_EQ(peak_pages(groups, 0, 64), 0);
  EXPECT_EQ(peak_pages(groups, 1, 64), 2);
  EXPECT_EQ(peak_pages(groups, 17, 64), 2 + 3);
}

TEST(KvDemand, ForksShareTheFullPagesOfThePrompt) {
  const std::vector<KvGroupSpec> groups = {{.block_tokens = 16}};
  EXPECT_EQ(peak_pages_forked(groups, 40, 60, 64, 1), peak_pages(groups, 60, 64));
  EXPECT_EQ(peak_pages_forked(groups, 40, 60, 64, 4), 2 + 4 * 2);
  EXPECT_EQ(peak_pages_forked(groups, 32, 60, 64, 4), 2 + 4 * 2);
}

// The bound is never exceeded by what a sequence takes, for every window, page, chunk and length,
// and for long sequences it is met up to a page.
TEST(KvDemand, BoundsWhatASlidingGroupHolds) {
  for (int32_t window : {1, 3, 8, 20}) {
    for (int32_t block_tokens : {1, 4, 16}) {
      for (int32_t chunk : {1, 5, 16}) {
        const std::vector<KvGroupSpec> groups = {
            {.kind = KvKind::kSliding, .window = window, .block_tokens = block_tokens}};
        BlockPool pool(256);
        SequenceBlocks blocks(groups);
        std::vector<GroupBlocks> added;
        std::vector<BlockCopy> copies;
        int32_t most = 0;
        for (int32_t first = 0; first < 200; first += chunk) {
          blocks.trim(pool, first, Ticket());
          blocks.grow(pool, first, chunk, 0, Ticket(), added, copies);
          most = std::max(most, blocks.pages_held());
          ASSERT_LE(most, peak_pages(groups, first + chunk, chunk));
        }
        EXPECT_GE(most + 1, peak_pages(groups, 200, chunk));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::kv_demand_test
