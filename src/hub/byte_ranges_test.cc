#include "hub/byte_ranges.h"

#include <gtest/gtest.h>

#include <vector>

#include "base/rng.h"

namespace headrace::byte_ranges_test {
namespace {

TEST(ByteRanges, AreJoinedAndHaveGaps) {
  ByteRanges there;
  EXPECT_EQ(there.whole(), 0);
  EXPECT_EQ(there.gap({}, 100, 30), (ByteRange{0, 30}));
  there.add({10, 20});
  EXPECT_EQ(there.whole(), 0);
  EXPECT_EQ(there.gap({}, 100, 30), (ByteRange{0, 10}));
  ByteRanges taken;
  taken.add({0, 10});
  EXPECT_EQ(there.gap(taken, 100, 30), (ByteRange{20, 50}));
  there.add({0, 10});
  EXPECT_EQ(there.whole(), 20);
  EXPECT_EQ(there.text(), "0-20 ");
  there.add({20, 100});
  EXPECT_EQ(there.total(), 100);
  EXPECT_FALSE(there.gap({}, 100, 30));
  EXPECT_FALSE(ByteRanges().gap({}, 0, 30));
}

TEST(ByteRanges, TextThatIsNoneIsEmpty) {
  EXPECT_EQ(ByteRanges::parse("0-20 30-40 ", 40).total(), 30);
  for (const char* bad :
       {"", "0-20", "0-41 ", "20-10 ", "-1-5 ", "a-b ", "0 ", "0-99999999999999999999 "}) {
    EXPECT_EQ(ByteRanges::parse(bad, 40).total(), 0) << bad;
  }
}

// Against a byte each.
TEST(ByteRanges, SayWhatAddedAndRemovedBytesSay) {
  constexpr int64_t kSize = 64;
  Rng rng(5);
  ByteRanges ranges;
  std::vector<bool> bytes(kSize);
  for (int step = 0; step < 2000; ++step) {
    const auto first = static_cast<int64_t>(rng.next() % kSize);
    const int64_t second = first + static_cast<int64_t>(rng.next() % (kSize - first + 1));
    const bool add = rng.next() % 2 == 0;
    add ? ranges.add({first, second}) : ranges.remove({first, second});
    for (int64_t i = first; i < second; ++i) bytes[i] = add;
    int64_t total = 0, whole = 0;
    for (int64_t i = 0; i < kSize; ++i) {
      total += bytes[i];
      if (bytes[i] && whole == i) ++whole;
    }
    ASSERT_EQ(ranges.total(), total);
    ASSERT_EQ(ranges.whole(), whole);
    ASSERT_EQ(ByteRanges::parse(ranges.text(), kSize).text(), ranges.text());
  }
}

}  // namespace
}  // namespace headrace::byte_ranges_test
