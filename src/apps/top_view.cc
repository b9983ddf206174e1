#include "apps/top_view.h"

#include <algorithm>
#include <optional>
#include <span>
#include <utility>

#include <fmt/format.h>

#include "terminal/cell_width.h"
#include "terminal/char_plot.h"
#include "terminal/safe_text.h"

namespace headrace {
namespace {

constexpr double kWindowSeconds = 60;  // of percentiles
constexpr size_t kSpeedsMax = 1024;    // as many as the widest plot shows
constexpr int kBarColumns = 30;
constexpr int kPlotRowsMin = 3, kPlotRowsMax = 12;
constexpr Style kTitle{.bold = true}, kQuiet{.dim = true}, kBar{.colour = Colour::kGreen};
constexpr Style kFull{.colour = Colour::kRed}, kPlot{.colour = Colour::kCyan};

struct LatencyRow {
  std::string_view label, metric;
};
constexpr LatencyRow kLatencies[] = {
    {"first token", "vllm:time_to_first_token_seconds"},
    {"per token", "vllm:inter_token_latency_seconds"},
    {"whole answer", "vllm:e2e_request_latency_seconds"},
    {"in the queue", "vllm:request_queue_time_seconds"},
};

// "1,234", "56.7k", "1.2M"
std::string short_count(double value) {
  if (value >= 1e6) return fmt::format("{:.1f}M", value / 1e6);
  if (value >= 1e5) return fmt::format("{:.1f}k", value / 1e3);
  return fmt::format("{:.0f}", value);
}

std::string short_time(std::optional<double> seconds) {
  if (!seconds) return "-";
  if (*seconds < 0.01) return fmt::format("{:.1f} ms", *seconds * 1e3);
  if (*seconds < 1) return fmt::format("{:.0f} ms", *seconds * 1e3);
  return fmt::format("{:.1f} s", *seconds);
}

void append_label(StyledTexts& out, std::string_view label) {
  append_styled(out, fmt::format("{:<14}", label), kQuiet);
}

// The first `rows` rows, each no wider than `columns`.
StyledTexts clipped(const StyledTexts& texts, const TerminalSize& size) {
  StyledTexts out;
  int row = 0, column = 0;
  for (const StyledText& each : texts) {
    std::string_view rest = each.text;
    while (!rest.empty() && row < size.rows) {
      const size_t end = std::min(rest.find('\n'), rest.size());
      const std::string_view shown = prefix_of_columns(rest.substr(0, end), size.columns - column);
      append_styled(out, shown, each.style);
      column += text_columns(shown);
      if (end < rest.size()) {
        append_styled(out, "\n", {});
        ++row;
        column = 0;
      }
      rest.remove_prefix(std::min(end + 1, rest.size()));
    }
  }
  return out;
}

int count_rows(const StyledTexts& texts) {
  const std::string text = plain_text(texts);
  return static_cast<int>(std::count(text.begin(), text.end(), '\n'));
}

}  // namespace

void TopView::add(ServerLook look) {
  failure_.clear();
  constexpr std::string_view kGenerated = "vllm:generation_tokens_total";
  if (!looks_.empty()) {
    const double seconds = look.seconds - looks_.back().seconds;
    const double tokens = look.metrics.sum(kGenerated) - looks_.back().metrics.sum(kGenerated);
    speeds_.push_back(seconds > 0 ? std::max(0.0, tokens / seconds) : 0);
    if (speeds_.size() > kSpeedsMax) speeds_.pop_front();
  }
  looks_.push_back(std::move(look));
  while (looks_.size() > 2 && looks_.back().seconds - looks_[1].seconds > kWindowSeconds) {
    looks_.pop_front();
  }
}

StyledTexts TopView::frame(const TerminalSize& size) const {
  StyledTexts out;
  append_styled(out, "headrace top", kTitle);
  append_styled(out, "  " + terminal_safe(url_) + "\n", {});
  if (!failure_.empty()) append_styled(out, terminal_safe(failure_) + "\n", kFull);
  if (!looks_.empty()) {
    add_requests(out);
    add_memory(std::min(kBarColumns, size.columns / 3), out);
    add_speed(out);
    add_latencies(out);
    add_plot(size, count_rows(out), out);
  }
  return clipped(out, size);
}

void TopView::add_requests(StyledTexts& out) const {
  const MetricsText& now = looks_.back().metrics;
  append_label(out, "models");
  const std::vector<std::string>& models = looks_.back().models;
  append_styled(
      out, models.empty() ? "none" : terminal_safe(fmt::format("{}", fmt::join(models, ", "))), {});
  append_styled(out, "\n", {});
  append_label(out, "requests");
  append_styled(out, fmt::format("{} running", short_count(now.sum("vllm:num_requests_running"))),
                kTitle);
  append_styled(
      out,
      fmt::format(", {} waiting, {} done", short_count(now.sum("vllm:num_requests_waiting")),
                  short_count(now.sum("vllm:request_success_total"))),
      {});
  const double preempted = now.sum("vllm:num_preemptions_total");
  if (preempted > 0) append_styled(out, fmt::format(", {} preempted", short_count(preempted)), {});
  append_styled(out, "\n", {});
}

void TopView::add_memory(int columns, StyledTexts& out) const {
  const MetricsText& now = looks_.back().metrics;
  const double share = now.greatest("vllm:kv_cache_usage_perc");
  append_label(out, "KV cache");
  append_styled(out, share_bar(share, columns), share > 0.9 ? kFull : kBar);
  append_styled(out, fmt::format(" {:.0f} %\n", share * 100), {});
  const double asked = now.sum("vllm:prefix_cache_queries_total");
  const double found = now.sum("vllm:prefix_cache_hits_total");
  append_label(out, "prefix hits");
  append_styled(out, share_bar(asked > 0 ? found / asked : 0, columns), kBar);
  append_styled(
      out,
      asked > 0 ? fmt::format(" {:.0f} % of {} tokens\n", found / asked * 100, short_count(asked))
                : " nothing was looked up yet\n",
      {});
}

void TopView::add_speed(StyledTexts& out) const {
  const MetricsText& now = looks_.back().metrics;
  append_label(out, "tokens");
  append_styled(out, fmt::format("{:.1f} tok/s answered", rate("vllm:generation_tokens_total")),
                kTitle);
  append_styled(
      out,
      fmt::format(", {:.1f} tok/s of prompts; {} and {} so far\n", rate("vllm:prompt_tokens_total"),
                  short_count(now.sum("vllm:generation_tokens_total")),
                  short_count(now.sum("vllm:prompt_tokens_total"))),
      {});
}

void TopView::add_latencies(StyledTexts& out) const {
  append_styled(out, fmt::format("{:<14}{:>10}{:>10}{:>10}\n", "", "p50", "p90", "p99"), kQuiet);
  for (const LatencyRow& row : kLatencies) {
    const MetricHistogram all = looks_.back().metrics.histogram(row.metric);
    MetricHistogram recent = all.since(looks_.front().metrics.histogram(row.metric));
    // Where nothing came in the last minute, what came before says more than nothing.
    if (looks_.size() < 2 || recent.count() == 0) recent = all;
    append_label(out, row.label);
    for (const double share : {0.5, 0.9, 0.99}) {
      append_styled(out, fmt::format("{:>10}", short_time(recent.quantile(share))), {});
    }
    append_styled(out, "\n", {});
  }
}

void TopView::add_plot(const TerminalSize& size, int rows_used, StyledTexts& out) const {
  const int rows = std::min(kPlotRowsMax, size.rows - rows_used - 2);
  if (rows < kPlotRowsMin || size.columns < 20 || speeds_.size() < 2) return;
  const std::vector<double> values(speeds_.begin(), speeds_.end());
  const size_t shown = std::min(values.size(), static_cast<size_t>(2 * size.columns));
  const double highest =
      shown == 0 ? 0
                 : *std::max_element(values.end() - static_cast<ptrdiff_t>(shown), values.end());
  const double top = round_top(highest);
  append_styled(out, fmt::format("\ntok/s answered, up to {:.0f}\n", top), kQuiet);
  for (const std::string& row : braille_plot(values, size.columns, rows - 1, top)) {
    append_styled(out, row, kPlot);
    append_styled(out, "\n", {});
  }
}

// From the look before to the last.
double TopView::rate(std::string_view counter) const {
  if (looks_.size() < 2) return 0;
  const ServerLook &last = looks_.back(), &before = looks_[looks_.size() - 2];
  const double seconds = last.seconds - before.seconds;
  if (seconds <= 0) return 0;
  return std::max(0.0, (last.metrics.sum(counter) - before.metrics.sum(counter)) / seconds);
}

}  // namespace headrace
