#include "terminal/char_plot.h"

#include <gtest/gtest.h>

namespace headrace::char_plot_test {
namespace {

TEST(BraillePlot, FillsWhatIsBelowTheValues) {
  const double values[] = {1, 2, 3, 4, 8, 0};
  EXPECT_EQ(braille_plot(values, 3, 1, 4), (std::vector<std::string>{"⣠⣾⡇"}));
  EXPECT_EQ(braille_plot(values, 3, 2, 8), (std::vector<std::string>{"⠀⠀⡇", "⣠⣾⡇"}));
}

TEST(BraillePlot, TheLastValuesStandAtTheRight) {
  const double values[] = {9, 9, 1, 1};
  EXPECT_EQ(braille_plot(values, 1, 1, 1), (std::vector<std::string>{"⣿"}));
  const double one[] = {1};
  EXPECT_EQ(braille_plot(one, 2, 1, 1), (std::vector<std::string>{"⠀⢸"}));
  EXPECT_EQ(braille_plot({}, 2, 1, 1), (std::vector<std::string>{"⠀⠀"}));
}

TEST(BraillePlot, WhatIsMoreThanNothingHasADot) {
  const double values[] = {0.0001, 0};
  EXPECT_EQ(braille_plot(values, 1, 1, 1000), (std::vector<std::string>{"⡀"}));
}

TEST(ShareBar, IsExactToAnEighth) {
  EXPECT_EQ(share_bar(0, 3), "···");
  EXPECT_EQ(share_bar(1, 3), "███");
  EXPECT_EQ(share_bar(0.5, 3), "█▌·");
  EXPECT_EQ(share_bar(2, 2), "██");
}

TEST(RoundTop, IsOneOfFewValues) {
  EXPECT_EQ(round_top(0), 1);
  EXPECT_EQ(round_top(1.1), 2);
  EXPECT_EQ(round_top(3), 5);
  EXPECT_EQ(round_top(6), 10);
  EXPECT_EQ(round_top(101), 200);
  EXPECT_EQ(round_top(450), 500);
}

}  // namespace
}  // namespace headrace::char_plot_test
