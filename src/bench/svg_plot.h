// SvgPlot: a plot as an SVG element inside an HTML page. It has no script and no colours of its
// own: classes (plot_style()) name them, so that they follow a dark page.
#pragma once

#include <span>
#include <string>
#include <string_view>
#include <vector>

namespace headrace {

struct PlotPoint {
  double x = 0, y = 0;
};

struct SvgSeries {
  std::string name;
  std::vector<PlotPoint> points;  // in the order in which a line joins them
};

enum class SvgMarks { kLines, kDots };

struct SvgPlot {
  std::string title, x_label, y_label;
  SvgMarks marks = SvgMarks::kLines;
  bool log_x = false;             // points with x <= 0 are left out
  double y_max = 0;               // 0: as high as the points
  std::vector<SvgSeries> series;  // four colours; without points "nothing to show"
};

// Points beyond kPlotPointsMax of a series are left out evenly; the first and the last stay.
inline constexpr size_t kPlotPointsMax = 2000;
std::string to_svg(const SvgPlot& plot);
// Rules of CSS that the elements need.
std::string_view plot_style();

// 0, 20, 40, ... up to `high`: about `count` round numbers.
std::vector<double> round_ticks(double high, int count);
// The share of values that are at most x, in percent.
std::vector<PlotPoint> cumulative_shares(std::vector<double> values);
// Of text in HTML, also between double quotes.
std::string html_text(std::string_view text);

}  // namespace headrace
