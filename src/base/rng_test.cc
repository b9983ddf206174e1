#include "base/rng.h"

#include <gtest/gtest.h>

namespace headrace::rng_test {
namespace {

TEST(CounterHash, IsAPureFunctionOfItsCounters) {
  const uint64_t a = counter_hash(7, 1, 2, RngPurpose::kSample);
  EXPECT_EQ(a, counter_hash(7, 1, 2, RngPurpose::kSample));
  EXPECT_NE(a, counter_hash(7, 2, 1, RngPurpose::kSample));
  EXPECT_NE(a, counter_hash(7, 1, 2, RngPurpose::kAcceptance));
}

TEST(CounterHash, UniformsFillTheUnitInterval) {
  // Chi-square over 64 bins: 63 degrees of freedom, the 1e-6 quantile is about 131.
  int bins[64] = {};
  constexpr int kDraws = 64'000;
  for (int i = 0; i < kDraws; ++i) {
    const double u = uniform01(counter_hash(1, 0, static_cast<uint64_t>(i), RngPurpose::kSample));
    ASSERT_GE(u, 0.0);
    ASSERT_LT(u, 1.0);
    ++bins[static_cast<int>(u * 64)];
  }
  double chi2 = 0;
  for (int count : bins) chi2 += (count - 1000.0) * (count - 1000.0) / 1000.0;
  EXPECT_LT(chi2, 131.0);
}

TEST(Rng, BetweenIsInclusive) {
  Rng rng(3);
  bool low = false, high = false;
  for (int i = 0; i < 1000; ++i) {
    const int64_t x = rng.between(-2, 2);
    ASSERT_GE(x, -2);
    ASSERT_LE(x, 2);
    low |= x == -2;
    high |= x == 2;
  }
  EXPECT_TRUE(low && high);
}

}  // namespace
}  // namespace headrace::rng_test
