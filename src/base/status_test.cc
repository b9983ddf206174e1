#include "base/status.h"

#include <gtest/gtest.h>

namespace headrace {
namespace {

Result<int> half(int x) {
  if (x % 2 != 0) return invalid_argument("x is odd", "x");
  return x / 2;
}

Result<int> quarter(int x) {
  HR_ASSIGN_OR_RETURN(const int h, half(x));
  return half(h);
}

TEST(Status, CarriesCodeMessageAndField) {
  const Status status = quarter(6).status();
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "x is odd");
  EXPECT_EQ(status.field(), "x");
  EXPECT_EQ(status.with_context("a.gguf").message(), "a.gguf: x is odd");
}

TEST(Result, HoldsValue) {
  EXPECT_EQ(quarter(8).value(), 2);
  EXPECT_TRUE(quarter(8).status().ok());
}

TEST(ResultDeathTest, ValueOfAnErrorIsABug) { EXPECT_DEATH((void)quarter(1).value(), "CHECK"); }

}  // namespace
}  // namespace headrace
