#include "sched/ngram_source.h"

#include <gtest/gtest.h>

namespace headrace::ngram_source_test {
namespace {

using Tokens = std::vector<TokenId>;

class NgramSourceTest : public ::testing::Test {
 protected:
  Tokens propose(const Tokens& prompt, const Tokens& output, int32_t most) {
    if (request_ == nullptr) {
      auto request = std::make_shared<Request>();
      request->prompt = prompt;
      request_ = request;
      sequence_ = std::make_unique<Sequence>(
          Sequence{.id = SequenceId(1), .request = request_, .blocks = SequenceBlocks({})});
    }
    sequence_->output = output;
    TokenTree proposed;
    source_.propose(*sequence_, {.depth = most, .tokens = most}, proposed);
    EXPECT_TRUE(proposed.is_chain());
    return proposed.tokens;
  }

  NgramSource source_{2, 4, 1};
  std::shared_ptr<const Request> request_;
  std::unique_ptr<Sequence> sequence_;
};

TEST_F(NgramSourceTest, WhatFollowedTheSameTokensBefore) {
  EXPECT_EQ(propose({1, 2, 3, 4, 5}, {1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(propose({}, {1, 2, 3}, 8), (Tokens{4, 5, 1, 2, 3}));
}

// The longest match first, then what is more frequent; of siblings as many as may be.
TEST(NgramTrees, WhatFollowedElsewhereBranchesOff) {
  const Tokens prompt = {9, 1, 2, 7, 8, 3, 1, 2, 5, 6, 4, 1, 2, 5, 9, 4, 1, 2, 3, 1, 9, 1, 2};
  const auto propose = [&](int32_t width, int32_t depth, int32_t tokens) {
    auto request = std::make_shared<Request>();
    request->prompt = prompt;
    Sequence sequence{.id = SequenceId(1), .request = request, .blocks = SequenceBlocks({})};
    NgramSource source(2, 4, width);
    TokenTree tree;
    source.propose(sequence, {.depth = depth, .tokens = tokens}, tree);
    EXPECT_TRUE(tree.valid());
    return tree;
  };
  // 9 1 2 stood before: 7 8 3; of 1 2 alone 5 came twice, in two ways, and 3 once, the latest.
  EXPECT_EQ(propose(3, 2, 64), (TokenTree{{7, 8, 5, 3, 1, 9, 6}, {-1, 0, -1, -1, 3, 2, 2}}));
  EXPECT_EQ(propose(3, 2, 4), (TokenTree{{7, 8, 5, 3}, {-1, 0, -1, -1}}));
  EXPECT_EQ(propose(2, 2, 64), (TokenTree{{7, 8, 3, 1}, {-1, 0, -1, 2}}));
  EXPECT_EQ(propose(3, 3, 2), (TokenTree{{7, 8}}));
  EXPECT_EQ(propose(1, 3, 3), (TokenTree{{7, 8, 3}}));
}

TEST(NgramTrees, WhatProposesNoneIsRefused) {
  const auto refusal = [](ProposalOptions options) {
    return std::string(create_draft_source(options).status().message());
  };
  using enum ProposalMethod;
  EXPECT_EQ(refusal({.method = kNgram, .tree_width = 2}), "");
  EXPECT_EQ(refusal({.method = kMedusa, .tree_width = 2}), "");
  EXPECT_NE(refusal({.tree_width = 2}).find("nothing proposes: --spec-method ngram"),
            std::string::npos);
  EXPECT_NE(refusal({.method = kNgram, .tree_width = 2, .tree = {{0, 1}, {-1, -1}}})
                .find("speculative_token_tree is of drafts, not of method ngram"),
            std::string::npos);
  EXPECT_NE(refusal({.method = kNgram, .tree_width = 9}).find("between 1 and 8"),
            std::string::npos);
  EXPECT_NE(refusal({.method = kNgram, .tree_width = 2, .tree_tokens = 65}).find("1 and 64"),
            std::string::npos);
  EXPECT_NE(refusal({.method = kNgram, .tree_width = 2, .synthetic_acceptance = 0.5})
                .find("synthetic_acceptance_rate"),
            std::string::npos);
}

TEST_F(NgramSourceTest, NothingWhereTheLastTokensAreNew) {
  EXPECT_EQ(propose({1, 2, 3}, {}, 4), Tokens{});
  EXPECT_EQ(propose({}, {3}, 4), Tokens{});  // 3 alone is too short a match
  EXPECT_EQ(propose({}, {3, 9}, 4), Tokens{});
}

TEST_F(NgramSourceTest, TheLongestMatchAndThenTheLatest) {
  // "7 1 2" stands before 8, "1 2" alone later before 9.
  EXPECT_EQ(propose({7, 1, 2, 8, 5, 1, 2, 9, 7, 1, 2}, {}, 1), (Tokens{8}));
}

TEST_F(NgramSourceTest, OfEqualMatchesTheLatest) {
  EXPECT_EQ(propose({6, 1, 2, 8, 5, 1, 2, 9, 7, 1, 2}, {}, 1), (Tokens{9}));
}

TEST_F(NgramSourceTest, ALoopIsContinuedUpToWhatIsKnown) {
  EXPECT_EQ(propose({1, 2, 1, 2, 1, 2}, {}, 8), (Tokens{1, 2}));
}

TEST(CreateDraftSource, OptionsThatCannotBeAreNamed) {
  EXPECT_EQ(create_draft_source({}).value(), nullptr);
  EXPECT_NE(create_draft_source({.method = ProposalMethod::kNgram}).value(), nullptr);
  const auto message = [](ProposalOptions options) {
    options.method = ProposalMethod::kNgram;
    return std::string(create_draft_source(options).status().message());
  };
  EXPECT_NE(message({.tokens_max = 17}).find("num_speculative_tokens 17"), std::string::npos);
  EXPECT_NE(message({.lookup_min = 5, .lookup_max = 4}).find("prompt_lookup_min 5"),
            std::string::npos);
}

}  // namespace
}  // namespace headrace::ngram_source_test
