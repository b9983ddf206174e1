#include "apps/metrics_text.h"

#include <algorithm>
#include <cctype>
#include <cmath>
#include <cstdlib>
#include <limits>

namespace headrace {
namespace {

constexpr double kValueMax = 1e18;  // sums of these and what is made of them stay numbers

// Prometheus' numbers: +Inf and NaN, too.
double metric_number(const std::string& text) {
  if (text == "+Inf" || text == "Inf") return std::numeric_limits<double>::infinity();
  return std::strtod(text.c_str(), nullptr);
}

// name="value",... up to "}", which is taken, too. False: it is malformed.
bool take_labels(std::string_view& text, std::vector<std::pair<std::string, std::string>>& labels) {
  while (!text.empty() && text[0] != '}') {
    const size_t equals = text.find("=\"");
    if (equals == text.npos) return false;
    std::string name(text.substr(0, equals)), value;
    text.remove_prefix(equals + 2);
    while (!text.empty() && text[0] != '"') {
      const bool escaped = text[0] == '\\' && text.size() > 1;
      if (escaped) text.remove_prefix(1);
      value += escaped && text[0] == 'n' ? '\n' : text[0];
      text.remove_prefix(1);
    }
    if (text.empty()) return false;
    text.remove_prefix(1);
    if (text.starts_with(',')) text.remove_prefix(1);
    labels.emplace_back(std::move(name), std::move(value));
  }
  if (text.empty()) return false;
  text.remove_prefix(1);
  return true;
}

const std::string* find_label(const std::vector<std::pair<std::string, std::string>>& labels,
                              std::string_view name) {
  for (const auto& [each, value] : labels) {
    if (each == name) return &value;
  }
  return nullptr;
}

}  // namespace

std::optional<double> MetricHistogram::quantile(double share) const {
  const double wanted = share * count();
  if (!(count() > 0)) return std::nullopt;
  double low = 0, below = 0;
  for (const auto& [bound, up_to] : buckets) {
    if (up_to >= wanted && up_to > below) {
      if (std::isinf(bound)) return low;
      return low + (bound - low) * (wanted - below) / (up_to - below);
    }
    low = bound;
    below = up_to;
  }
  return low;
}

MetricHistogram MetricHistogram::since(const MetricHistogram& before) const {
  if (before.buckets.size() != buckets.size() || before.count() > count()) return *this;
  MetricHistogram later = *this;
  for (size_t i = 0; i < buckets.size(); ++i) later.buckets[i].second -= before.buckets[i].second;
  return later;
}

MetricsText MetricsText::parse(std::string_view text) {
  MetricsText metrics;
  while (!text.empty()) {
    const size_t end = std::min(text.find('\n'), text.size());
    std::string_view line = text.substr(0, end);
    text.remove_prefix(std::min(end + 1, text.size()));
    const size_t name_end = line.find_first_of("{ ");
    if (line.empty() || line[0] == '#' || name_end == line.npos) continue;
    const std::string name(line.substr(0, name_end));
    Sample sample;
    line.remove_prefix(name_end);
    if (line.starts_with('{')) {
      line.remove_prefix(1);
      if (!take_labels(line, sample.labels)) continue;
    }
    const size_t first = line.find_first_not_of(' ');
    if (first == line.npos) continue;
    line.remove_prefix(first);
    const double value = metric_number(std::string(line.substr(0, line.find(' '))));
    if (!std::isfinite(value)) continue;  // a broken server's: no sum of it would say anything
    sample.value = std::clamp(value, -kValueMax, kValueMax);
    metrics.samples_[name].push_back(std::move(sample));
  }
  return metrics;
}

double MetricsText::sum(std::string_view name) const {
  const auto found = samples_.find(name);
  double sum = 0;
  if (found != samples_.end()) {
    for (const Sample& sample : found->second) sum += sample.value;
  }
  return sum;
}

double MetricsText::greatest(std::string_view name) const {
  const auto found = samples_.find(name);
  double greatest = 0;
  if (found != samples_.end()) {
    for (const Sample& sample : found->second) greatest = std::max(greatest, sample.value);
  }
  return greatest;
}

std::vector<std::pair<std::string, double>> MetricsText::by_label(std::string_view name,
                                                                  std::string_view label) const {
  std::vector<std::pair<std::string, double>> values;
  const auto found = samples_.find(name);
  if (found == samples_.end()) return values;
  for (const Sample& sample : found->second) {
    const std::string* value = find_label(sample.labels, label);
    if (value == nullptr) continue;
    const auto same = std::find_if(values.begin(), values.end(),
                                   [value](const auto& each) { return each.first == *value; });
    if (same == values.end()) {
      values.emplace_back(*value, sample.value);
    } else {
      same->second += sample.value;
    }
  }
  return values;
}

MetricHistogram MetricsText::histogram(std::string_view name) const {
  MetricHistogram histogram;
  for (const auto& [bound, count] : by_label(std::string(name) + "_bucket", "le")) {
    const double number = metric_number(bound);
    if (!std::isnan(number)) histogram.buckets.emplace_back(number, count);
  }
  std::sort(histogram.buckets.begin(), histogram.buckets.end());
  return histogram;
}

}  // namespace headrace
