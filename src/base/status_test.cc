#include "base/status.h"

#include <gtest/gtest.h>

#include <memory>
#include <string>
#include <type_traits>
#include <vector>

namespace headrace::status_test {
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

Result<std::vector<std::string>> long_names() {
  return std::vector<std::string>(3, std::string(100, 'x'));
}

// A reference into the temporary would be read after its end (AddressSanitizer reports it).
TEST(Result, ValueOfATemporaryOutlivesIt) {
  static_assert(std::is_same_v<decltype(*long_names()), std::vector<std::string>>);
  size_t length = 0;
  for (const std::string& name : *long_names()) length += name.size();
  EXPECT_EQ(length, 300u);
}

TEST(Result, GivesAMoveOnlyValueAway) {
  Result<std::unique_ptr<int>> result(std::make_unique<int>(7));
  const std::unique_ptr<int> taken = *std::move(result);
  EXPECT_EQ(*taken, 7);
}

TEST(ResultDeathTest, ValueOfAnErrorIsABug) { EXPECT_DEATH((void)quarter(1).value(), "CHECK"); }

}  // namespace
}  // namespace headrace::status_test
