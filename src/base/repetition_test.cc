#include "base/repetition.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace headrace::repetition_test {
namespace {

bool loops(std::vector<TokenId> tokens, LoopLimits limits) { return ends_in_loop(tokens, limits); }

TEST(Repetition, ALoopStandsOftenEnoughAtTheEnd) {
  const LoopLimits limits{.size_max = 3, .size_min = 1, .count_min = 3};
  EXPECT_TRUE(loops({9, 7, 7, 7}, limits));
  EXPECT_FALSE(loops({7, 7, 7, 9}, limits));
  EXPECT_FALSE(loops({7, 7}, limits));
  EXPECT_TRUE(loops({1, 2, 1, 2, 1, 2}, limits));
  EXPECT_TRUE(loops({5, 2, 1, 2, 1, 2, 1}, limits));
  EXPECT_FALSE(loops({1, 2, 3, 1, 2, 3, 1, 2}, limits));
  EXPECT_TRUE(loops({1, 2, 3, 1, 2, 3, 1, 2, 3}, limits));
  EXPECT_FALSE(loops({1, 2, 3, 4, 1, 2, 3, 4, 1, 2, 3, 4}, limits));
  EXPECT_FALSE(loops({7, 7, 7, 7, 7}, {.size_max = 3, .size_min = 2, .count_min = 3}));
  EXPECT_TRUE(loops({7, 7, 7, 7, 7, 7}, {.size_max = 3, .size_min = 2, .count_min = 3}));
  EXPECT_FALSE(loops({7, 7, 7}, {}));
  EXPECT_FALSE(loops({}, limits));
}

// Against the definition, spelled out.
TEST(Repetition, IsWhatItsDefinitionSays) {
  Rng rng(3);
  int found = 0;
  for (int i = 0; i < 3000; ++i) {
    std::vector<TokenId> tokens(rng.below(20));
    for (TokenId& token : tokens) token = static_cast<TokenId>(rng.below(2));
    const LoopLimits limits{.size_max = 1 + static_cast<int32_t>(rng.below(5)),
                            .size_min = 1 + static_cast<int32_t>(rng.below(3)),
                            .count_min = 2 + static_cast<int32_t>(rng.below(3))};
    bool expected = false;
    for (int32_t size = limits.size_min; size <= limits.size_max; ++size) {
      const size_t all = static_cast<size_t>(size * limits.count_min);
      if (all > tokens.size()) continue;
      bool same = true;
      for (size_t at = tokens.size() - all; at + static_cast<size_t>(size) < tokens.size(); ++at) {
        same = same && tokens[at] == tokens[at + static_cast<size_t>(size)];
      }
      expected = expected || same;
    }
    EXPECT_EQ(ends_in_loop(tokens, limits), expected) << i;
    found += expected ? 1 : 0;
  }
  EXPECT_GT(found, 300);
}

}  // namespace
}  // namespace headrace::repetition_test
