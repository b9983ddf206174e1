#include "terminal/cell_width.h"

#include <gtest/gtest.h>

namespace headrace::cell_width_test {
namespace {

TEST(CellWidth, WideCharactersTakeTwoColumnsAndMarksNone) {
  EXPECT_EQ(text_columns("abc"), 3);
  EXPECT_EQ(text_columns("日本"), 4);
  EXPECT_EQ(text_columns("e\xCC\x81"), 1);
  EXPECT_EQ(text_columns("🎉"), 2);
  EXPECT_EQ(text_columns("👩‍👩‍👧‍👦"), 2);
  EXPECT_EQ(text_columns("🇩🇪"), 2);
  EXPECT_EQ(text_columns("│─⣿█"), 4);
  EXPECT_EQ(text_columns("한국어"), 6);
}

TEST(CellWidth, APrefixEndsBetweenClusters) {
  EXPECT_EQ(prefix_of_columns("日本", 3), "日");
  EXPECT_EQ(prefix_of_columns("abc", 5), "abc");
  EXPECT_EQ(prefix_of_columns("ae\xCC\x81x", 2), "ae\xCC\x81");
  EXPECT_EQ(prefix_of_columns("👩‍👩‍👧‍👦x", 1), "");
}

}  // namespace
}  // namespace headrace::cell_width_test
