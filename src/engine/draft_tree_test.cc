// How the tree of a draft grows: what is gone on from, what is proposed, where the draft has it.
#include "engine/draft_tree.h"

#include <gtest/gtest.h>

namespace headrace::draft_tree_test {
namespace {

using Tokens = std::vector<TokenId>;
using Places = std::vector<int32_t>;

Places of(std::span<const int32_t> places) { return {places.begin(), places.end()}; }
std::vector<uint64_t> of(std::span<const uint64_t> paths) { return {paths.begin(), paths.end()}; }

TEST(DraftTree, AChainHasNoPathsAndEndsWhereItIsUnlikely) {
  DraftTree tree({.depth = 4}, 4, 0.3);
  EXPECT_EQ(tree.wanted(DraftTree::kBeforeAll), 1);
  tree.add(DraftTree::kBeforeAll, std::vector<DraftTree::Candidate>{{5, 0.9}, {6, 0.1}});
  EXPECT_EQ(of(tree.go_on()), Places{0});
  EXPECT_EQ(tree.computed(0), 0);
  EXPECT_TRUE(tree.paths(0).empty());
  tree.add(0, std::vector<DraftTree::Candidate>{{7, 0.5}});
  EXPECT_EQ(of(tree.go_on()), Places{1});
  tree.add(1, std::vector<DraftTree::Candidate>{{8, 0.5}});
  EXPECT_TRUE(tree.go_on().empty());  // 0.225
  EXPECT_EQ(tree.propose(), (TokenTree{{5, 7, 8}}));
  EXPECT_EQ(tree.computed_path(Tokens{5, 7, 8}), (Places{0, 1}));  // of 8 nothing was asked
}

TEST(DraftTree, BehindAnEndAndAtTheDeepestItEnds) {
  DraftTree ends({.depth = 4}, 4, 0);
  ends.add(DraftTree::kBeforeAll, std::vector<DraftTree::Candidate>{{5, 0.9, /*ends=*/true}});
  EXPECT_TRUE(ends.go_on().empty());
  DraftTree deep({.depth = 1, .width = 2}, 4, 0);
  deep.add(DraftTree::kBeforeAll, std::vector<DraftTree::Candidate>{{5, 0.5}, {6, 0.4}, {7, 0.1}});
  EXPECT_TRUE(deep.go_on().empty());
  EXPECT_EQ(deep.propose(), (TokenTree{{5, 6}, {-1, -1}}));
}

// 5 and 6 first; the second's 8 is likelier than what stands behind the first.
TEST(DraftTree, TheLikeliestOfAllAreProposed) {
  DraftTree tree({.depth = 3, .width = 2}, 4, 0);
  tree.add(DraftTree::kBeforeAll, std::vector<DraftTree::Candidate>{{5, 0.5}, {6, 0.4}});
  EXPECT_EQ(of(tree.go_on()), (Places{0, 1}));
  tree.add(0, std::vector<DraftTree::Candidate>{{7, 0.2}, {8, 0.1}});   // 0.10, 0.05
  tree.add(1, std::vector<DraftTree::Candidate>{{8, 0.9}, {7, 0.05}});  // 0.36, 0.02
  EXPECT_EQ(of(tree.go_on()), (Places{4, 2}));
  EXPECT_EQ(tree.depth(4), 1);
  EXPECT_EQ(tree.computed(4), 2);
  EXPECT_EQ(of(tree.paths(2)), (std::vector<uint64_t>{0b1, 0b10, 0b110}));
  EXPECT_EQ(of(tree.paths(3)), (std::vector<uint64_t>{0b1, 0b10, 0b110, 0b1001}));
  tree.add(4, std::vector<DraftTree::Candidate>{{9, 0.5}, {3, 0.1}});  // 0.18, 0.036
  tree.add(2, std::vector<DraftTree::Candidate>{{9, 0.5}, {3, 0.1}});  // 0.05
  EXPECT_TRUE(tree.go_on().empty());
  EXPECT_EQ(tree.propose(), (TokenTree{{5, 6, 8, 9}, {-1, -1, 1, 2}}));
  EXPECT_EQ(tree.computed_path(Tokens{6, 8, 9}), (Places{1, 2}));
  EXPECT_EQ(tree.computed_path(Tokens{5}), Places{0});
  EXPECT_TRUE(tree.is_first(0));
  EXPECT_FALSE(tree.is_first(1));
}

// What would not be proposed: two of four places are left to tokens that are likelier.
TEST(DraftTree, NothingIsComputedForWhatWouldNotBeProposed) {
  DraftTree tree({.depth = 3, .width = 3}, 2, 0);
  tree.add(DraftTree::kBeforeAll, std::vector<DraftTree::Candidate>{{5, 0.5}, {6, 0.3}, {7, 0.2}});
  EXPECT_EQ(of(tree.go_on()), (Places{0, 1}));
  tree.add(0, std::vector<DraftTree::Candidate>{{8, 0.9}});  // 0.45
  tree.add(1, std::vector<DraftTree::Candidate>{{8, 0.9}});  // 0.27
  EXPECT_TRUE(tree.go_on().empty());                         // two are computed
  EXPECT_EQ(tree.propose(), (TokenTree{{5, 8}}));
}

// Two first, one behind the second alone, for which the draft has two candidates.
TEST(DraftTree, AFormIsKeptTo) {
  const DraftForm form{.depth = 3, .width = 2, .ranks = {{0, 1, 0, 0}, {-1, -1, 1, 2}}};
  DraftTree tree(form, 4, 0);
  EXPECT_EQ(tree.wanted(DraftTree::kBeforeAll), 2);
  tree.add(DraftTree::kBeforeAll,
           std::vector<DraftTree::Candidate>{{5, 0.9}, {6, 0.01}, {7, 0.001}});
  EXPECT_EQ(of(tree.go_on()), Places{1});
  EXPECT_EQ(tree.wanted(1), 1);
  tree.add(1, std::vector<DraftTree::Candidate>{{8, 0.5}, {9, 0.5}});
  EXPECT_EQ(of(tree.go_on()), Places{2});
  EXPECT_EQ(of(tree.paths(1)), std::vector<uint64_t>());  // computed were 6 and 8, a chain
  tree.add(2, std::vector<DraftTree::Candidate>{});
  EXPECT_TRUE(tree.go_on().empty());
  EXPECT_EQ(tree.propose(), (TokenTree{{5, 6, 8}, {-1, -1, 1}}));
  EXPECT_EQ(tree.computed_path(Tokens{6, 8}), (Places{0, 1}));
  EXPECT_EQ(tree.computed_path(Tokens{5}), Places());
}

}  // namespace
}  // namespace headrace::draft_tree_test
