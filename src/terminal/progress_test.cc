#include "terminal/progress.h"

#include <gtest/gtest.h>

#include "terminal/cell_width.h"

namespace headrace::progress_test {
namespace {

TEST(ProgressText, SaysRateAndTimeLeft) {
  EXPECT_EQ(
      progress_text({.label = "eval", .done = 25, .total = 100, .seconds = 5, .unit = "rows"}, 100),
      "eval [######                  ]  25 %, 5.0 rows/s, 0:15 left");
  EXPECT_EQ(progress_text({.label = "load", .done = 0.5, .seconds = 3700, .note = "3.14"}, 100),
            "load [############            ]  50 %, 1:01:40 left  3.14");
}

TEST(ProgressText, GuessesNothing) {
  EXPECT_EQ(progress_text({.label = "a", .done = 0, .seconds = 9, .unit = "x"}, 100),
            "a [                        ]   0 %");
  EXPECT_EQ(progress_text({.label = "a", .done = 1, .total = 2, .seconds = 0.5, .unit = "x"}, 100),
            "a [############            ]  50 %");
  EXPECT_EQ(progress_text({.label = "a", .done = 3, .total = 0}, 100),
            "a [                        ]   0 %");
  EXPECT_EQ(progress_text({.label = "a", .done = 3, .total = 2}, 100),
            "a [########################] 100 %");
}

TEST(ProgressText, FitsItsRow) {
  for (int columns = 1; columns < 60; ++columns) {
    const std::string text = progress_text(
        {.label = "日本語", .done = 1, .total = 3, .seconds = 10, .unit = "x", .note = "y"},
        columns);
    EXPECT_LE(text_columns(text), columns);
  }
}

}  // namespace
}  // namespace headrace::progress_test
