#include "engine/verification.h"

#include <gtest/gtest.h>

#include <utility>

namespace headrace {
namespace {

class VerificationTest : public ::testing::Test {
 protected:
  // A sequence for which 5, 6, 7 were proposed; 5, 9, 7 and 8 are what its rows sampled.
  // `dead_ends`: what has no token ended a form's way, and is no fault.
  StepResult cut(double synthetic_rate, std::vector<TokenId> sampled = {5, 9, 7, 8},
                 bool dead_ends = false) {
    std::vector<LogitRow> rows;
    for (const TokenId proposed : {5, 6, 7, -1}) {
      rows.push_back({.sequence = SequenceId(1), .samples = true, .proposed = proposed});
    }
    StepResult result;
    StepResult::Row& row = result.rows.emplace_back();
    for (const TokenId token : sampled) {
      row.accepted.push_back(token);
      row.logprobs.push_back({.token = token});
      (dead_ends ? row.dead_end : row.fault) |= token < 0;
    }
    AcceptanceRule rule(synthetic_rate);
    cut_rejected(rows, rule, result);
    EXPECT_EQ(row.logprobs.size(), row.accepted.size());
    return result;
  }
  static std::vector<TokenId> tokens(const StepResult& result) {
    return {result.rows[0].accepted.begin(), result.rows[0].accepted.end()};
  }
};

TEST_F(VerificationTest, TokensUpToTheFirstThatIsNotTheOneProposed) {
  EXPECT_EQ(tokens(cut(-1)), (std::vector<TokenId>{5, 9}));
}

// A faulty row has no token (-1).
TEST_F(VerificationTest, AFaultOfARejectedRowIsNobodys) {
  EXPECT_FALSE(cut(-1, {5, 9, -1, 8}).rows[0].fault);
  EXPECT_TRUE(cut(-1, {5, -1, 7, 8}).rows[0].fault);
}

// What came before it is kept, and the next step meets it again.
TEST_F(VerificationTest, ADeadEndComesAloneOrNotAtAll) {
  const auto of = [&](std::vector<TokenId> sampled) {
    const StepResult result = cut(-1, std::move(sampled), true);
    EXPECT_FALSE(result.rows[0].fault);
    return std::pair(tokens(result), result.rows[0].dead_end);
  };
  using Tokens = std::vector<TokenId>;
  EXPECT_EQ(of({-1, -1, -1, -1}), std::pair(Tokens{-1}, true));
  EXPECT_EQ(of({5, 6, -1, 8}), std::pair(Tokens{5, 6}, false));
  EXPECT_EQ(of({5, 6, 7, -1}), std::pair(Tokens{5, 6, 7}, false));
  EXPECT_EQ(of({5, 9, 7, -1}), std::pair(Tokens{5, 9}, false));
}

TEST_F(VerificationTest, ASyntheticRateDecidesWhateverWasSampled) {
  EXPECT_EQ(tokens(cut(1)), (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(tokens(cut(0)), (std::vector<TokenId>{5, 9}));
}

}  // namespace
}  // namespace headrace
