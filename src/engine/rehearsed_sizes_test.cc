#include "engine/rehearsed_sizes.h"

#include <gtest/gtest.h>

#include <vector>

namespace headrace::rehearsed_sizes_test {
namespace {

class RehearsedSizesTest : public ::testing::Test {
 protected:
  bool adds(size_t tokens, size_t logit_rows, size_t kept = 0) {
    StepInput input;
    input.tokens = std::span(tokens_).first(tokens);
    input.logit_rows = std::span(rows_).first(logit_rows);
    input.kept_rows = std::span(rows_).first(kept);
    input.keeps_rows = kept > 0;
    return sizes_.adds(input);
  }

 private:
  RehearsedSizes sizes_;
  std::vector<TokenId> tokens_ = std::vector<TokenId>(8192);
  std::vector<int32_t> rows_ = std::vector<int32_t>(8192);
};

TEST_F(RehearsedSizesTest, AClassOfRowsIsAddedOnce) {
  EXPECT_TRUE(adds(1000, 1));
  EXPECT_FALSE(adds(1000, 1));
  EXPECT_FALSE(adds(1010, 1));  // the library chooses for 1,024 rows
  EXPECT_TRUE(adds(1025, 1));
  EXPECT_TRUE(adds(1000, 2));
  EXPECT_FALSE(adds(1000, 0));
}

TEST_F(RehearsedSizesTest, TheHeadHasItsRowsInPieces) {
  EXPECT_TRUE(adds(2000, 256));
  EXPECT_FALSE(adds(2000, 512));
  EXPECT_TRUE(adds(2000, 300));
  EXPECT_FALSE(adds(2000, 44));
  EXPECT_FALSE(adds(2000, 556));
}

TEST_F(RehearsedSizesTest, TheRowsThatTheLastLayerKeepsAreASizeOfTheirOwn) {
  EXPECT_TRUE(adds(64, 3, 3));
  EXPECT_TRUE(adds(64, 3, 4));
  EXPECT_FALSE(adds(64, 3, 4));
  EXPECT_TRUE(adds(4, 3));  // all products of a layer
  EXPECT_TRUE(adds(5, 3));
  EXPECT_FALSE(adds(64, 3, 5));
}

}  // namespace
}  // namespace headrace::rehearsed_sizes_test
