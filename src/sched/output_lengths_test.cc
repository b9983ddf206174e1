#include "sched/output_lengths.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/rng.h"

namespace headrace::output_lengths_test {
namespace {

TEST(OutputLengths, AtFirstEachOrderOfMagnitudeIsAsLikely) {
  const OutputLengths lengths(1 << 12);
  EXPECT_NEAR(lengths.rest_at(0, 0.5), 1 << 6, 8);
  EXPECT_NEAR(lengths.rest_at(0, 0.25), 1 << 3, 2);
  EXPECT_NEAR(lengths.rest_at(0, 0.75), 1 << 9, 64);
  EXPECT_NEAR(lengths.rest_at(64, 0.5) + 64, 1 << 9, 64);
}

TEST(OutputLengths, OneLengthIsKnownToTheToken) {
  OutputLengths lengths(4096);
  for (int i = 0; i < 5000; ++i) lengths.add(2048);
  for (double share : {0.05, 0.5, 0.95}) {
    EXPECT_DOUBLE_EQ(lengths.rest_at(0, share), 2048);
    EXPECT_DOUBLE_EQ(lengths.rest_at(1000, share), 1048);
  }
  EXPECT_DOUBLE_EQ(lengths.rest_at(2047, 0.5), 1);
}

TEST(OutputLengths, BeyondAllThatWereSeenAsManyAgain) {
  const OutputLengths lengths(1000);
  EXPECT_DOUBLE_EQ(lengths.rest_at(3000, 0.5), 3000);
}

// Beside the answers themselves that are longer.
TEST(OutputLengths, IsTheDistributionOfThoseThatAreLonger) {
  Rng rng(3);
  OutputLengths lengths(2048);
  std::vector<int32_t> all;
  for (int i = 0; i < 1000; ++i) {
    all.push_back(1 + static_cast<int32_t>(-200 * std::log(1 - rng.uniform())));
    lengths.add(all.back());
  }
  std::sort(all.begin(), all.end());
  for (int32_t tokens : {0, 10, 100, 200, 400}) {
    const auto longer = std::upper_bound(all.begin(), all.end(), tokens);
    for (double share : {0.2, 0.5, 0.8}) {
      const auto place = static_cast<ptrdiff_t>(share * static_cast<double>(all.end() - longer));
      const int32_t expected = *(longer + place) - tokens;
      EXPECT_NEAR(lengths.rest_at(tokens, share), expected, 0.25 * expected + 8)
          << tokens << " " << share;
    }
  }
}

TEST(OutputLengths, ForgetsWhatWasLongAgo) {
  OutputLengths lengths(4096);
  for (int i = 0; i < 2000; ++i) lengths.add(1000);
  for (int i = 0; i < 6000; ++i) lengths.add(10);
  EXPECT_DOUBLE_EQ(lengths.rest_at(0, 0.95), 10);
}

TEST(OutputLengths, TheMeanRestIsThatOfThoseThatWereLonger) {
  OutputLengths lengths(4096);
  for (int i = 0; i < 900; ++i) lengths.add(10);
  for (int i = 0; i < 100; ++i) lengths.add(2000);
  EXPECT_NEAR(lengths.rest_mean(0), 209, 15);     // 0.9 x 10 + 0.1 x 2,000
  EXPECT_NEAR(lengths.rest_mean(500), 1500, 30);  // only the long ones
  EXPECT_EQ(lengths.rest_mean(8000), 8000) << "beyond all that were seen: as many again";
}

}  // namespace
}  // namespace headrace::output_lengths_test
