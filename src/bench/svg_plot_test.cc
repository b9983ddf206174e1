#include "bench/svg_plot.h"

#include <gtest/gtest.h>

#include <limits>

namespace headrace::svg_plot_test {
namespace {

size_t count_of(std::string_view text, std::string_view part) {
  size_t count = 0;
  for (size_t at = text.find(part); at != text.npos; at = text.find(part, at + 1)) ++count;
  return count;
}

TEST(SvgPlot, TicksAreRound) {
  EXPECT_EQ(round_ticks(100, 5), (std::vector<double>{0, 20, 40, 60, 80, 100}));
  EXPECT_EQ(round_ticks(7, 5), (std::vector<double>{0, 2, 4, 6}));
  EXPECT_EQ(round_ticks(0.3, 3).size(), 4u);
  EXPECT_EQ(round_ticks(1e9, 4), (std::vector<double>{0, 5e8, 1e9}));
}

TEST(SvgPlot, ALineGoesFromCornerToCorner) {
  const std::string svg = to_svg({.title = "T", .series = {{"", {{0, 0}, {10, 5}}}}});
  EXPECT_NE(svg.find("points=\"62.0,214.0 628.0,30.0 \""), svg.npos) << svg;
}

TEST(SvgPlot, AScaleOfDecadesLeavesOutWhatItCannotShow) {
  const std::string svg = to_svg({.title = "T",
                                  .marks = SvgMarks::kDots,
                                  .log_x = true,
                                  .series = {{"", {{0, 1}, {1, 1}, {100, 2}}}}});
  EXPECT_EQ(count_of(svg, "<circle"), 2u);
  EXPECT_NE(svg.find("cx=\"62.0\""), svg.npos);
  EXPECT_NE(svg.find("cx=\"628.0\""), svg.npos);
}

TEST(SvgPlot, ALongSeriesIsThinnedAndKeepsItsEnds) {
  std::vector<PlotPoint> points;
  for (int i = 0; i <= 100'000; ++i) points.push_back({static_cast<double>(i), 1});
  const std::string svg =
      to_svg({.title = "T", .marks = SvgMarks::kDots, .series = {{"", points}}});
  EXPECT_EQ(count_of(svg, "<circle"), kPlotPointsMax);
  EXPECT_NE(svg.find("cx=\"62.0\""), svg.npos);
  EXPECT_NE(svg.find("cx=\"628.0\""), svg.npos);
}

TEST(SvgPlot, WithoutPointsItSaysSo) {
  const double nan = std::numeric_limits<double>::quiet_NaN();
  for (const std::vector<PlotPoint>& points : {std::vector<PlotPoint>{}, {{nan, 1}, {1, nan}}}) {
    for (const bool log_x : {false, true}) {
      const std::string svg = to_svg({.title = "T", .log_x = log_x, .series = {{"", points}}});
      EXPECT_NE(svg.find("nothing to show"), svg.npos);
      EXPECT_EQ(svg.find("nan"), svg.npos);
    }
  }
}

TEST(SvgPlot, OneValueIsNoDivisionByZero) {
  for (const bool log_x : {false, true}) {
    const std::string svg = to_svg({.title = "T", .log_x = log_x, .series = {{"", {{1, 0}}}}});
    EXPECT_EQ(svg.find("nan"), svg.npos) << svg;
    EXPECT_EQ(svg.find("inf"), svg.npos) << svg;
  }
}

TEST(SvgPlot, TextIsNoMarkup) {
  EXPECT_EQ(html_text("<a href=\"x\">&"), "&lt;a href=&quot;x&quot;&gt;&amp;");
  const std::string svg =
      to_svg({.title = "<script>", .series = {{"<b>", {{1, 1}}}, {"c", {{1, 1}}}}});
  EXPECT_EQ(svg.find("<script>"), svg.npos);
  EXPECT_EQ(svg.find("<b>"), svg.npos);
}

TEST(SvgPlot, SharesGrowToAHundred) {
  const std::vector<PlotPoint> points = cumulative_shares({3, 1, 2, 4});
  ASSERT_EQ(points.size(), 4u);
  EXPECT_EQ(points[0].x, 1);
  EXPECT_EQ(points[0].y, 25);
  EXPECT_EQ(points[3].x, 4);
  EXPECT_EQ(points[3].y, 100);
}

}  // namespace
}  // namespace headrace::svg_plot_test
