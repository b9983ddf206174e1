// What is learnt of where drafts are right, and the trees that follow from it.
#include "sched/draft_chances.h"

#include <gtest/gtest.h>

#include "base/rng.h"

namespace headrace::draft_chances_test {
namespace {

// First tokens are right with 0.6, second ones with half of what is left, third ones never; behind
// them 0.25 and a fifth of what is left.
DraftChances learnt() {
  DraftChances chances;
  Rng rng(4);
  for (int i = 0; i < 20000; ++i) {
    const double first = rng.uniform(), second = rng.uniform();
    const int32_t right = first < 0.6 ? 0 : first < 0.8 ? 1 : -1;
    chances.note(0, right == 0 ? 1 : 3, right);
    if (right >= 0) chances.note(1, 2, second < 0.25 ? 0 : second < 0.4 ? 1 : -1);
  }
  return chances;
}

TEST(DraftChances, RanksAreToldApartHoweverManyStoodThere) {
  const DraftChances chances = learnt();
  const auto first = chances.at(0, 0);
  EXPECT_NEAR(first[0], 0.6, 0.06);
  EXPECT_NEAR(first[1], 0.2, 0.04);
  EXPECT_NEAR(first[2], 0.0, 0.02);
  EXPECT_LE(first[3], first[2]);
  const auto second = chances.at(1, 0);
  EXPECT_NEAR(second[0], 0.25, 0.06);
  EXPECT_NEAR(second[1], 0.15, 0.05);
  // One whose tokens are more often right than others': its second ones come less often.
  EXPECT_NEAR(chances.at(0, 0.2)[0], first[0] + 0.2, 1e-9);
  EXPECT_LT(chances.at(0, 0.2)[1], first[1]);
}

// 0.6; 0.2 beside it and 0.15 behind it; 0.09 beside that, 0.05 behind the second.
TEST(DraftChances, ATreeHasTheLikeliestTokens) {
  const DraftChances chances = learnt();
  const auto grown = chances.grow({.depth = 2, .width = 2, .tokens = 5}, 0);
  EXPECT_EQ(grown.ranks.tokens, (std::vector<TokenId>{0, 1, 0, 1, 0}));
  EXPECT_EQ(grown.ranks.parents, (std::vector<int32_t>{-1, -1, 0, 0, 1}));
  for (int32_t i = 0; i < grown.ranks.size(); ++i) {
    const auto at = static_cast<size_t>(i);
    EXPECT_GT(grown.chances[at], 0);
    if (i > 0) {
      EXPECT_LE(grown.chances[at], grown.chances[at - 1]);
    }
    const auto here = chances.at(grown.ranks.depth(i), 0)[static_cast<size_t>(grown.ranks.rank(i))];
    const int32_t parent = grown.ranks.parent(i);
    EXPECT_EQ(grown.chances[at],
              here * (parent < 0 ? 1 : grown.chances[static_cast<size_t>(parent)]));
  }
  EXPECT_EQ(chances.grow({.depth = 1, .width = 3, .tokens = 9}, 0).ranks.size(), 3);
  EXPECT_EQ(chances.grow({.depth = 2, .width = 1, .tokens = 9}, 0).ranks.parents,
            (std::vector<int32_t>{-1, 0}));
}

// No other tree of as many tokens is likelier, by trying many.
TEST(DraftChances, NoTreeOfAsManyTokensIsLikelier) {
  const DraftChances chances = learnt();
  Rng rng(2);
  for (int32_t tokens = 1; tokens <= 12; ++tokens) {
    const auto grown = chances.grow({.depth = 4, .width = 3, .tokens = tokens}, 0);
    double best = 0;
    for (const double chance : grown.chances) best += chance;
    for (int i = 0; i < 300; ++i) {
      TokenTree tree;
      std::vector<double> of;
      double sum = 0;
      while (tree.size() < tokens) {
        const auto parent = static_cast<int32_t>(rng.between(-1, tree.size() - 1));
        const int32_t depth = parent < 0 ? 0 : tree.depth(parent) + 1;
        const int32_t rank = tree.child_count(parent);
        if (depth == 4 || rank == 3) continue;
        tree.tokens.push_back(rank);
        tree.parents.push_back(parent);
        of.push_back((parent < 0 ? 1 : of[static_cast<size_t>(parent)]) *
                     chances.at(depth, 0)[static_cast<size_t>(rank)]);
        sum += of.back();
      }
      EXPECT_LE(sum, best + 1e-9) << tokens;
    }
  }
}

TEST(DraftChances, ATreeIsAPartOfTheOneThatIsGiven) {
  const DraftChances chances = learnt();
  const TokenTree within{{0, 0, 0, 1, 0}, {-1, 0, 1, 1, 3}};
  const auto grown = chances.grow({.depth = 4, .width = 2, .tokens = 64, .within = &within}, 0);
  EXPECT_EQ(grown.ranks.size(), 5);
  EXPECT_TRUE(grown.ranks.valid());
  EXPECT_EQ(grown.ranks.child_count(TokenTree::kBeforeAll), 1);
  const auto cut = chances.grow({.depth = 2, .width = 2, .tokens = 64, .within = &within}, 0);
  EXPECT_EQ(cut.ranks.parents, (std::vector<int32_t>{-1, 0}));
}

}  // namespace
}  // namespace headrace::draft_chances_test
