#include "engine/verification.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

class VerificationTest : public ::testing::Test {
 protected:
  // A sequence for which 5, 6, 7 were proposed; 5, 9, 7 and 8 are what its rows sampled.
  StepResult cut(double synthetic_rate, std::vector<TokenId> sampled = {5, 9, 7, 8}) {
    std::vector<LogitRow> rows;
    for (const TokenId proposed : {5, 6, 7, -1}) {
      rows.push_back({.sequence = SequenceId(1), .samples = true, .proposed = proposed});
    }
    StepResult result;
    StepResult::Row& row = result.rows.emplace_back();
    for (const TokenId token : sampled) {
      row.accepted.push_back(token);
      row.logprobs.push_back({.token = token});
      row.fault = row.fault || token < 0;
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

TEST_F(VerificationTest, ASyntheticRateDecidesWhateverWasSampled) {
  EXPECT_EQ(tokens(cut(1)), (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(tokens(cut(0)), (std::vector<TokenId>{5, 9}));
}

}  // namespace
}  // namespace headrace
