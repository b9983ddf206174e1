#include "engine/verification.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

class VerificationTest : public ::testing::Test {
 protected:
  // A sequence for which 5, 6, 7 were proposed; 5, 9, 7 and 8 are what its rows sampled.
  StepResult cut(double synthetic_rate) {
    std::vector<LogitRow> rows;
    for (const TokenId proposed : {5, 6, 7, -1}) {
      rows.push_back({.sequence = SequenceId(1), .samples = true, .proposed = proposed});
    }
    StepResult result;
    result.rows.emplace_back();
    for (const TokenId sampled : {5, 9, 7, 8}) result.rows[0].accepted.push_back(sampled);
    AcceptanceRule rule(synthetic_rate);
    cut_rejected(rows, rule, result);
    return result;
  }
  static std::vector<TokenId> tokens(const StepResult& result) {
    return {result.rows[0].accepted.begin(), result.rows[0].accepted.end()};
  }
};

TEST_F(VerificationTest, TokensUpToTheFirstThatIsNotTheOneProposed) {
  EXPECT_EQ(tokens(cut(-1)), (std::vector<TokenId>{5, 9}));
}

TEST_F(VerificationTest, ASyntheticRateDecidesWhateverWasSampled) {
  EXPECT_EQ(tokens(cut(1)), (std::vector<TokenId>{5, 6, 7, 8}));
  EXPECT_EQ(tokens(cut(0)), (std::vector<TokenId>{5, 9}));
}

}  // namespace
}  // namespace headrace
