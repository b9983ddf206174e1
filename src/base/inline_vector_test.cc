#include "base/inline_vector.h"

#include <gtest/gtest.h>

#include <numeric>
#include <vector>

namespace headrace::inline_vector_test {
namespace {

using List = InlineVector<int32_t, 4>;

List up_to(int32_t count) {
  List list;
  for (int32_t i = 0; i < count; ++i) list.push_back(i);
  return list;
}

std::vector<int32_t> plain(const List& list) { return {list.begin(), list.end()}; }

TEST(InlineVector, HoldsWhatWasPushedBesideAndBeyondItsOwnPlace) {
  for (int32_t count = 0; count <= 40; ++count) {
    std::vector<int32_t> wanted(static_cast<size_t>(count));
    std::iota(wanted.begin(), wanted.end(), 0);
    const List list = up_to(count);
    EXPECT_EQ(plain(list), wanted);
    EXPECT_EQ(list.empty(), count == 0);
    if (count > 0) {
      EXPECT_EQ(list.back(), count - 1);
    }
  }
}

TEST(InlineVector, CopiesAreApartAndMovesLeaveNothing) {
  for (const int32_t count : {0, 3, 4, 5, 33}) {
    for (const int32_t before : {0, 2, 9}) {
      List list = up_to(count), copy = up_to(before), moved = up_to(before);
      copy = list;
      EXPECT_EQ(copy, list);
      copy.push_back(7);
      EXPECT_EQ(plain(list), plain(up_to(count)));
      moved = std::move(list);
      EXPECT_EQ(moved, up_to(count));
      EXPECT_TRUE(list.empty());
      list.push_back(1);
      EXPECT_EQ(plain(list), std::vector<int32_t>{1});
      const List again(std::move(moved));
      EXPECT_EQ(again, up_to(count));
    }
  }
}

TEST(InlineVector, ClearedItIsFilledAnew) {
  List list = up_to(20);
  list.clear();
  EXPECT_TRUE(list.empty());
  list = {5, 6};
  EXPECT_EQ(plain(list), (std::vector<int32_t>{5, 6}));
}

}  // namespace
}  // namespace headrace::inline_vector_test
