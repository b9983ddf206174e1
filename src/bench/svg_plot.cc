#include "bench/svg_plot.h"

#include <algorithm>
#include <cmath>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr double kWidth = 640, kHeight = 260;
constexpr double kLeft = 62, kRight = 12, kTop = 30, kBottom = 46;  // room of labels
constexpr int kColours = 4;

// From values to places; y grows downwards.
struct PlotScale {
  double x_low = 0, x_high = 1, y_high = 1;
  bool log_x = false;

  double x(double value) const {
    const double share = log_x ? std::log(value / x_low) / std::log(x_high / x_low)
                               : (value - x_low) / (x_high - x_low);
    return kLeft + std::clamp(share, 0.0, 1.0) * (kWidth - kLeft - kRight);
  }
  double y(double value) const {
    return kHeight - kBottom - std::clamp(value / y_high, 0.0, 1.0) * (kHeight - kTop - kBottom);
  }
};

std::vector<PlotPoint> shown_points(const SvgPlot& plot, const SvgSeries& series) {
  std::vector<PlotPoint> points;
  for (const PlotPoint& point : series.points) {
    if (std::isfinite(point.x) && std::isfinite(point.y) && (!plot.log_x || point.x > 0)) {
      points.push_back(point);
    }
  }
  if (points.size() <= kPlotPointsMax) return points;
  std::vector<PlotPoint> some;
  for (size_t i = 0; i < kPlotPointsMax; ++i) {
    some.push_back(points[i * (points.size() - 1) / (kPlotPointsMax - 1)]);
  }
  return some;
}

PlotScale scale_of(const SvgPlot& plot, std::span<const std::vector<PlotPoint>> shown) {
  PlotScale scale{.x_low = 0, .x_high = 0, .y_high = plot.y_max, .log_x = plot.log_x};
  bool first = true;
  for (const auto& points : shown) {
    for (const PlotPoint& point : points) {
      if (plot.log_x) scale.x_low = first ? point.x : std::min(scale.x_low, point.x);
      scale.x_high = std::max(scale.x_high, point.x);
      if (plot.y_max == 0) scale.y_high = std::max(scale.y_high, point.y);
      first = false;
    }
  }
  if (plot.log_x) {  // whole decades
    scale.x_low = std::pow(10, std::floor(std::log10(scale.x_low)));
    scale.x_high = std::pow(10, std::ceil(std::log10(scale.x_high)));
    if (scale.x_high <= scale.x_low) scale.x_high = scale.x_low * 10;
  } else if (scale.x_high <= 0) {
    scale.x_high = 1;
  }
  if (scale.y_high <= 0) scale.y_high = 1;
  return scale;
}

std::vector<double> x_ticks(const PlotScale& scale) {
  if (!scale.log_x) return round_ticks(scale.x_high, 8);
  std::vector<double> ticks;
  for (double tick = scale.x_low; tick < scale.x_high * 1.5; tick *= 10) ticks.push_back(tick);
  return ticks;
}

std::string axes(const SvgPlot& plot, const PlotScale& scale) {
  std::string text;
  for (const double tick : round_ticks(scale.y_high, 5)) {
    text += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                        R"(<text class="tick end" x="{:.1f}" y="{:.1f}">{:g}</text>)",
                        kLeft, kWidth - kRight, scale.y(tick), scale.y(tick), kLeft - 6,
                        scale.y(tick) + 4, tick);
  }
  for (const double tick : x_ticks(scale)) {
    text += fmt::format(R"(<line class="grid" x1="{:.1f}" x2="{:.1f}" y1="{:.1f}" y2="{:.1f}"/>)"
                        R"(<text class="tick" x="{:.1f}" y="{:.1f}">{:g}</text>)",
                        scale.x(tick), scale.x(tick), kTop, kHeight - kBottom, scale.x(tick),
                        kHeight - kBottom + 16, tick);
  }
  text += fmt::format(R"(<text class="label" x="{:.1f}" y="{:.1f}">{}</text>)",
                      (kLeft + kWidth - kRight) / 2, kHeight - 8, html_text(plot.x_label));
  text +=
      fmt::format(R"(<text class="label start" x="0" y="14">{}</text>)", html_text(plot.y_label));
  return text;
}

std::string marks(const SvgPlot& plot, const PlotScale& scale, std::span<const PlotPoint> points,
                  size_t number) {
  if (points.empty()) return "";
  std::string text;
  if (plot.marks == SvgMarks::kDots) {
    for (const PlotPoint& point : points) {
      text += fmt::format(R"(<circle class="dot{}" cx="{:.1f}" cy="{:.1f}" r="2"/>)",
                          number % kColours, scale.x(point.x), scale.y(point.y));
    }
    return text;
  }
  text = fmt::format(R"(<polyline class="line{}" points=")", number % kColours);
  for (const PlotPoint& point : points) {
    text += fmt::format("{:.1f},{:.1f} ", scale.x(point.x), scale.y(point.y));
  }
  return text + R"("/>)";
}

// Names in their colours, from the right of the first row.
std::string legend(const SvgPlot& plot) {
  if (plot.series.size() < 2) return "";
  std::string text = fmt::format(R"(<text class="tick end" x="{:.1f}" y="14">)", kWidth - kRight);
  for (size_t i = 0; i < plot.series.size(); ++i) {
    text += fmt::format(R"(<tspan class="name{}" dx="10">{}</tspan>)", i % kColours,
                        html_text(plot.series[i].name));
  }
  return text + "</text>";
}

}  // namespace

std::string to_svg(const SvgPlot& plot) {
  std::vector<std::vector<PlotPoint>> shown;
  for (const SvgSeries& series : plot.series) shown.push_back(shown_points(plot, series));
  const bool none =
      std::all_of(shown.begin(), shown.end(), [](const auto& points) { return points.empty(); });
  std::string text = fmt::format(
      "<figure><figcaption>{0}</figcaption><svg viewBox=\"0 0 {1:g} {2:g}\" role=\"img\" "
      "aria-label=\"{0}\">",
      html_text(plot.title), kWidth, kHeight);
  if (none) {
    text += fmt::format(R"(<text class="label" x="{:g}" y="{:g}">nothing to show</text>)",
                        kWidth / 2, kHeight / 2);
  } else {
    const PlotScale scale = scale_of(plot, shown);
    text += axes(plot, scale);
    for (size_t i = 0; i < shown.size(); ++i) text += marks(plot, scale, shown[i], i);
    text += legend(plot);
  }
  return text + "</svg></figure>\n";
}

std::string_view plot_style() {
  return R"(figure{margin:1.5em 0}figcaption{font-weight:600;margin-bottom:.3em}
svg{width:100%;height:auto;display:block}svg text{font:11px system-ui,sans-serif;fill:var(--faint)}
.tick,.label{text-anchor:middle}.end{text-anchor:end}.start{text-anchor:start}
.grid{stroke:var(--rule);stroke-width:1}
.line0,.line1,.line2,.line3{fill:none;stroke-width:1.6}
.line0{stroke:var(--c0)}.line1{stroke:var(--c1)}.line2{stroke:var(--c2)}.line3{stroke:var(--c3)}
.dot0{fill:var(--c0)}.dot1{fill:var(--c1)}.dot2{fill:var(--c2)}.dot3{fill:var(--c3)}
svg .name0{fill:var(--c0)}svg .name1{fill:var(--c1)}svg .name2{fill:var(--c2)}svg .name3{fill:var(--c3)}
)";
}

std::vector<double> round_ticks(double high, int count) {
  const double wanted = high / count;
  const double power = std::pow(10, std::floor(std::log10(wanted)));
  double step = power * 10;
  for (const double factor : {1.0, 2.0, 5.0}) {
    if (power * factor >= wanted * 0.999) {
      step = power * factor;
      break;
    }
  }
  std::vector<double> ticks;
  for (int i = 0; step * i <= high * 1.0001; ++i) ticks.push_back(step * i);
  return ticks;
}

std::vector<PlotPoint> cumulative_shares(std::vector<double> values) {
  std::sort(values.begin(), values.end());
  std::vector<PlotPoint> points;
  for (size_t i = 0; i < values.size(); ++i) {
    points.push_back(
        {values[i], 100.0 * static_cast<double>(i + 1) / static_cast<double>(values.size())});
  }
  return points;
}

std::string html_text(std::string_view text) {
  std::string escaped;
  for (const char c : text) {
    switch (c) {
      case '&':
        escaped += "&amp;";
        break;
      case '<':
        escaped += "&lt;";
        break;
      case '>':
        escaped += "&gt;";
        break;
      case '"':
        escaped += "&quot;";
        break;
      default:
        escaped += c;
    }
  }
  return escaped;
}

}  // namespace headrace
