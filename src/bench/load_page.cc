#include "bench/load_page.h"

#include <algorithm>
#include <cmath>
#include <fstream>

#include <fmt/format.h>

#include "bench/svg_plot.h"

namespace headrace {
namespace {

constexpr int kPageBins = 120;  // of time

constexpr std::string_view kPageHead = R"(<!doctype html>
<html lang="en"><head><meta charset="utf-8"><meta name="viewport" content="width=device-width">
<meta http-equiv="Content-Security-Policy" content="default-src 'none'; style-src 'unsafe-inline'">
<title>Headrace: a run</title><style>
:root{color-scheme:light dark;--text:#1d2330;--faint:#5b6475;--rule:#e3e6ec;--ground:#fff;
--c0:#2f5bea;--c1:#c2410c;--c2:#0f766e;--c3:#9333ea}
@media(prefers-color-scheme:dark){:root{--text:#e6e9f0;--faint:#a0a8b8;--rule:#2c3342;--ground:#12151c;
--c0:#7d9bff;--c1:#fb923c;--c2:#2dd4bf;--c3:#c084fc}}
body{font:15px/1.5 system-ui,sans-serif;color:var(--text);background:var(--ground);max-width:720px;
margin:2em auto;padding:0 1em}table{border-collapse:collapse;width:100%}
td,th{padding:.25em .5em;border-bottom:1px solid var(--rule);text-align:right}
td:first-child,th:first-child{text-align:left}th{color:var(--faint);font-weight:500}
.facts td{text-align:left;overflow-wrap:anywhere}pre{white-space:pre-wrap}
)";

struct ReportTimes {
  std::vector<double> ttft, tpot, itl, whole;  // milliseconds, of requests that were answered
  double begin = 0, end = 0;                   // seconds
};

ReportTimes times_of(std::span<const LoadOutcome> outcomes) {
  ReportTimes times;
  bool first = true;
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.ok()) continue;
    times.begin = first ? outcome.sent : std::min(times.begin, outcome.sent);
    times.end = std::max(times.end, outcome.ended);
    first = false;
    times.ttft.push_back((outcome.first_token - outcome.sent) * 1e3);
    times.whole.push_back((outcome.ended - outcome.sent) * 1e3);
    if (!outcome.gaps.empty()) times.tpot.push_back(outcome.per_token() * 1e3);
    for (const float gap : outcome.gaps) times.itl.push_back(gap * 1e3);
  }
  return times;
}

// Output tokens a second. A request's tokens are spread over its events, which come one a token or
// with several.
std::vector<PlotPoint> output_over_time(std::span<const LoadOutcome> outcomes,
                                        const ReportTimes& times) {
  const double bin = (times.end - times.begin) / kPageBins;
  std::vector<double> tokens(kPageBins, 0.0);
  const auto add = [&](double at, double count) {
    const auto index = static_cast<int>((at - times.begin) / bin);
    tokens[static_cast<size_t>(std::clamp(index, 0, kPageBins - 1))] += count;
  };
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.ok() || outcome.output_tokens == 0) continue;
    const double each =
        static_cast<double>(outcome.output_tokens) / static_cast<double>(outcome.gaps.size() + 1);
    double at = outcome.gaps.empty() ? outcome.last_token : outcome.first_token;
    add(at, each);
    for (const float gap : outcome.gaps) add(at += gap, each);
  }
  std::vector<PlotPoint> points;
  for (int i = 0; i < kPageBins; ++i) {
    points.push_back({(i + 0.5) * bin, tokens[static_cast<size_t>(i)] / bin});
  }
  return points;
}

// How many requests were under way: a step up where one is sent, down where it ends.
std::vector<PlotPoint> running_over_time(std::span<const LoadOutcome> outcomes,
                                         const ReportTimes& times) {
  std::vector<std::pair<double, int>> changes;
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.ok()) continue;
    changes.emplace_back(outcome.sent - times.begin, 1);
    changes.emplace_back(outcome.ended - times.begin, -1);
  }
  std::sort(changes.begin(), changes.end());
  std::vector<PlotPoint> points;
  int running = 0;
  for (const auto& [at, change] : changes) {
    points.push_back({at, static_cast<double>(running)});
    running += change;
    points.push_back({at, static_cast<double>(running)});
  }
  return points;
}

std::vector<PlotPoint> ttft_by_time(std::span<const LoadOutcome> outcomes,
                                    const ReportTimes& times) {
  std::vector<PlotPoint> points;
  for (const LoadOutcome& outcome : outcomes) {
    if (!outcome.ok()) continue;
    points.push_back({outcome.sent - times.begin, (outcome.first_token - outcome.sent) * 1e3});
  }
  return points;
}

std::string plots(std::span<const LoadOutcome> outcomes) {
  const ReportTimes times = times_of(outcomes);
  const bool any = times.end > times.begin;
  std::string text = to_svg(
      {.title = "Output over time",
       .x_label = "seconds",
       .y_label = "tokens a second",
       .series = {{"", any ? output_over_time(outcomes, times) : std::vector<PlotPoint>{}}}});
  text += to_svg({.title = "Requests under way",
                  .x_label = "seconds",
                  .y_label = "requests",
                  .series = {{"", running_over_time(outcomes, times)}}});
  text += to_svg({.title = "Time to the first token, by when a request was sent",
                  .x_label = "seconds",
                  .y_label = "milliseconds",
                  .marks = SvgMarks::kDots,
                  .series = {{"", ttft_by_time(outcomes, times)}}});
  text += to_svg({.title = "How many had to wait how long",
                  .x_label = "milliseconds, at most",
                  .y_label = "percent",
                  .log_x = true,
                  .y_max = 100,
                  .series = {{"first token", cumulative_shares(times.ttft)},
                             {"per later token", cumulative_shares(times.tpot)},
                             {"between events", cumulative_shares(times.itl)},
                             {"whole answer", cumulative_shares(times.whole)}}});
  return text;
}

std::string percentile_table(const LoadReport& report) {
  std::string text =
      "<table><tr><th>milliseconds</th><th>mean</th><th>p50</th><th>p90</th><th>p99</th>"
      "<th>p99.9</th><th>max</th></tr>";
  const auto add = [&](std::string_view name, const Percentiles& values) {
    text += fmt::format("<tr><td>{}</td>", name);
    for (const double value :
         {values.mean, values.p50, values.p90, values.p99, values.p999, values.max}) {
      text += fmt::format("<td>{:.2f}</td>", value);
    }
    text += "</tr>";
  };
  add("to the first token (TTFT)", report.ttft_ms);
  add("per later token (TPOT)", report.tpot_ms);
  add("between events (ITL)", report.itl_ms);
  add("whole answer", report.e2el_ms);
  if (report.refused > 0) add("until refused (429)", report.refusal_ms);
  return text + "</table>\n";
}

}  // namespace

std::string to_html(const LoadPage& page) {
  const LoadReport report = summarise(page.outcomes);
  std::string text = std::string(kPageHead) + std::string(plot_style()) +
                     "</style></head><body>\n<h1>A run of headrace bench serve</h1>\n";
  text += "<table class=\"facts\">";
  for (const auto& [name, value] : page.facts) {
    text += fmt::format("<tr><th>{}</th><td>{}</td></tr>", html_text(name), html_text(value));
  }
  text += "</table>\n<h2>In all</h2>\n";
  text += fmt::format(
      "<p><strong>{:.1f} output tokens a second</strong>, {:.2f} requests a second: {} answered, "
      "{} refused, {} failed in {:.3f} s; {} prompt tokens, {} output tokens.</p>\n",
      report.output_rate(), report.request_rate(), report.completed, report.refused, report.failed,
      report.seconds, report.prompt_tokens, report.output_tokens);
  if (report.failed > 0) {
    text += fmt::format("<p>The first failure: {}</p>\n", html_text(report.first_error));
  }
  text += percentile_table(report);
  if (!page.more.empty()) text += fmt::format("<pre>{}</pre>\n", html_text(page.more));
  return text + "<h2>Plots</h2>\n" + plots(page.outcomes) + "</body></html>\n";
}

Result<LoadPageFile> LoadPageFile::open(const std::string& path) {
  LoadPageFile file;
  file.path_ = path;
  if (!path.empty() && !std::ofstream(path, std::ios::app)) {
    return invalid_argument(fmt::format("--report {}: cannot be written; name another file", path));
  }
  return file;
}

Status LoadPageFile::write(const LoadPage& page) const {
  std::ofstream file(path_);
  file << to_html(page);
  file.close();
  if (file) return ok_status();
  return invalid_argument(fmt::format("--report {}: not everything could be written", path_));
}

}  // namespace headrace
