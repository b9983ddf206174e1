// The numbers of a server's /metrics: Prometheus' text format, read.
#pragma once

#include <map>
#include <optional>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

namespace headrace {

// How many values were no more than each bound; bounds ascend, the last one is infinite.
struct MetricHistogram {
  std::vector<std::pair<double, double>> buckets;

  double count() const { return buckets.empty() ? 0 : buckets.back().second; }
  // The value below which a share of them lies (0 to 1), as if those of a bucket lay evenly in it;
  // of the last bucket its lower bound. Empty: there are none.
  std::optional<double> quantile(double share) const;
  // What came since `before`. Where that is another server's, all.
  MetricHistogram since(const MetricHistogram& before) const;
};

class MetricsText {
 public:
  // Lines that are none are left out.
  static MetricsText parse(std::string_view text);

  bool has(std::string_view name) const { return samples_.find(name) != samples_.end(); }
  // Over all labels; 0: there is no such metric.
  double sum(std::string_view name) const;
  double greatest(std::string_view name) const;
  // By the values of one label, in the order of the text.
  std::vector<std::pair<std::string, double>> by_label(std::string_view name,
                                                       std::string_view label) const;
  // Of NAME_bucket, over all other labels.
  MetricHistogram histogram(std::string_view name) const;

 private:
  struct Sample {
    std::vector<std::pair<std::string, std::string>> labels;
    double value = 0;
  };
  std::map<std::string, std::vector<Sample>, std::less<>> samples_;
};

}  // namespace headrace
