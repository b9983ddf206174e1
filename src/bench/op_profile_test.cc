#include "bench/op_profile.h"

#include <gtest/gtest.h>

namespace headrace::op_profile_test {
namespace {

TEST(OpProfile, AddsUpCallsOfOneShape) {
  OpProfile profile;
  profile.ran("attention/cpu/x", {.shape = "9 heads", .rows = 1, .bytes = 100, .flops = 10}, 5);
  profile.ran("attention/cpu/x", {.shape = "9 heads", .rows = 1, .bytes = 300, .flops = 30}, 15);
  profile.ran("attention/cpu/x", {.shape = "9 heads", .rows = 2, .bytes = 7, .flops = 1}, 40);
  profile.ran("linear/cpu/x", {.shape = "9 heads", .rows = 1, .bytes = 7, .flops = 1}, 1);
  const std::vector<OpTotal> totals = profile.take();
  ASSERT_EQ(totals.size(), 3u);
  EXPECT_EQ(totals[0].cost.rows, 2);
  EXPECT_EQ(totals[1].calls, 2);
  EXPECT_EQ(totals[1].nanoseconds, 20);
  EXPECT_EQ(totals[1].cost.bytes, 200);
  EXPECT_EQ(totals[1].cost.flops, 20);
  EXPECT_EQ(totals[2].kernel, "linear/cpu/x");
  EXPECT_TRUE(profile.take().empty());
}

}  // namespace
}  // namespace headrace::op_profile_test
