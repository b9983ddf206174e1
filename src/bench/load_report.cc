#include "bench/load_report.h"

#include <algorithm>
#include <array>
#include <charconv>
#include <numeric>

#include <fmt/format.h>

#include "bench/workload.h"

namespace headrace {

Percentiles percentiles_of(const std::vector<double>& values) {
  if (values.empty()) return {};
  const double sum = std::accumulate(values.begin(), values.end(), 0.0);
  return {.mean = sum / static_cast<double>(values.size()),
          .p50 = percentile(values, 0.5),
          .p90 = percentile(values, 0.9),
          .p99 = percentile(values, 0.99),
          .p999 = percentile(values, 0.999),
          .max = percentile(values, 1)};
}

namespace {

struct TargetRow {
  std::string_view name;
  double LatencyTargets::*bound;
  double (*value)(const LoadOutcome& outcome);  // seconds
};
constexpr std::array<TargetRow, 3> kTargets = {{
    {"ttft", &LatencyTargets::ttft_ms,
     [](const LoadOutcome& outcome) { return outcome.first_token - outcome.sent; }},
    {"tpot", &LatencyTargets::tpot_ms,
     [](const LoadOutcome& outcome) { return outcome.per_token(); }},
    {"e2el", &LatencyTargets::e2el_ms,
     [](const LoadOutcome& outcome) { return outcome.ended - outcome.sent; }},
}};

}  // namespace

Status parse_latency_target(std::string_view text, LatencyTargets& targets) {
  const size_t colon = std::min(text.find(':'), text.size());
  const std::string_view name = text.substr(0, colon);
  const std::string_view number = text.substr(std::min(colon + 1, text.size()));
  double value = 0;
  const auto [end, error] = std::from_chars(number.data(), number.data() + number.size(), value);
  const bool whole = error == std::errc() && end == number.data() + number.size();
  const auto row = std::find_if(kTargets.begin(), kTargets.end(),
                                [&](const TargetRow& each) { return each.name == name; });
  if (row == kTargets.end() || !whole || !(value > 0)) {
    return invalid_argument(
        fmt::format("--goodput {}: expected ttft:MS, tpot:MS or e2el:MS, as ttft:500", text));
  }
  targets.*row->bound = value;
  return ok_status();
}

int64_t count_in_time(std::span<const LoadOutcome> outcomes, const LatencyTargets& targets) {
  return std::count_if(outcomes.begin(), outcomes.end(), [&](const LoadOutcome& outcome) {
    return outcome.ok() && std::all_of(kTargets.begin(), kTargets.end(), [&](const TargetRow& row) {
             return row.value(outcome) * 1e3 <= targets.*row.bound;
           });
  });
}

LoadReport summarise(std::span<const LoadOutcome> outcomes) {
  LoadReport report;
  std::vector<double> ttft, tpot, itl, e2el, refusals, retries;
  double first = 0, last = 0;
  for (const LoadOutcome& outcome : outcomes) {
    if (outcome.refused()) {
      ++report.refused;
      refusals.push_back((outcome.ended - outcome.sent) * 1e3);
      if (outcome.retry_after >= 0) retries.push_back(outcome.retry_after);
      continue;
    }
    if (!outcome.ok()) {
      if (report.failed++ == 0) report.first_error = outcome.error;
      continue;
    }
    first = report.completed == 0 ? outcome.sent : std::min(first, outcome.sent);
    last = std::max(last, outcome.ended);
    ++report.completed;
    report.prompt_tokens += outcome.prompt_tokens;
    report.output_tokens += outcome.output_tokens;
    ttft.push_back((outcome.first_token - outcome.sent) * 1e3);
    e2el.push_back((outcome.ended - outcome.sent) * 1e3);
    if (!outcome.gaps.empty()) tpot.push_back(outcome.per_token() * 1e3);
    for (const float gap : outcome.gaps) itl.push_back(gap * 1e3);
  }
  report.seconds = last - first;
  report.ttft_ms = percentiles_of(ttft);
  report.tpot_ms = percentiles_of(tpot);
  report.itl_ms = percentiles_of(itl);
  report.e2el_ms = percentiles_of(e2el);
  report.refusal_ms = percentiles_of(refusals);
  report.retry_after_s = percentiles_of(retries);
  return report;
}

Json::Object to_json(const LoadReport& report) {
  Json::Object row{{"completed", report.completed},
                   {"failed", report.failed},
                   {"refused", report.refused},
                   {"duration", report.seconds},
                   {"total_input_tokens", report.prompt_tokens},
                   {"total_output_tokens", report.output_tokens},
                   {"request_throughput", report.request_rate()},
                   {"output_throughput", report.output_rate()}};
  const auto add = [&](const std::string& name, const Percentiles& values) {
    row.insert(row.end(), {{"mean_" + name, values.mean},
                           {"median_" + name, values.p50},
                           {"p90_" + name, values.p90},
                           {"p99_" + name, values.p99},
                           {"p99.9_" + name, values.p999},
                           {"max_" + name, values.max}});
  };
  add("ttft_ms", report.ttft_ms);
  add("tpot_ms", report.tpot_ms);
  add("itl_ms", report.itl_ms);
  add("e2el_ms", report.e2el_ms);
  if (report.refused > 0) {
    add("refusal_ms", report.refusal_ms);
    add("retry_after_s", report.retry_after_s);
  }
  if (report.failed > 0) row.emplace_back("first_error", report.first_error);
  return row;
}

std::string to_text(const LoadReport& report) {
  std::string text = fmt::format("requests        {} completed, {} refused (429), {} failed{}{}\n",
                                 report.completed, report.refused, report.failed,
                                 report.failed > 0 ? ", the first: " : "", report.first_error);
  text += fmt::format("seconds         {:.3f}\n", report.seconds);
  text += fmt::format("output tok/s    {:.1f}  ({} prompt tokens, {} output tokens)\n",
                      report.output_rate(), report.prompt_tokens, report.output_tokens);
  const auto add = [&](std::string_view name, const Percentiles& values) {
    text += fmt::format(
        "{:<16}mean {:.2f}  p50 {:.2f}  p90 {:.2f}  p99 {:.2f}  p99.9 {:.2f}  max {:.2f}\n", name,
        values.mean, values.p50, values.p90, values.p99, values.p999, values.max);
  };
  add("TTFT ms", report.ttft_ms);
  add("TPOT ms", report.tpot_ms);
  add("ITL ms", report.itl_ms);
  add("whole ms", report.e2el_ms);
  if (report.refused > 0) {
    add("refusal ms", report.refusal_ms);
    add("Retry-After s", report.retry_after_s);
  }
  return text;
}

}  // namespace headrace
