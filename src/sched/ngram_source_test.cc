#include "sched/ngram_source.h"

#include <gtest/gtest.h>

namespace headrace {
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
    Tokens proposed;
    source_.propose(*sequence_, most, proposed);
    return proposed;
  }

  NgramSource source_{2, 4};
  std::shared_ptr<const Request> request_;
  std::unique_ptr<Sequence> sequence_;
};

TEST_F(NgramSourceTest, WhatFollowedTheSameTokensBefore) {
  EXPECT_EQ(propose({1, 2, 3, 4, 5}, {1, 2}, 2), (Tokens{3, 4}));
  EXPECT_EQ(propose({}, {1, 2, 3}, 8), (Tokens{4, 5, 1, 2, 3}));
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
}  // namespace headrace
