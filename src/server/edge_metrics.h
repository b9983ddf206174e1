// What the edge counts beside requests: batches, limits of keys, pins, traces.
#pragma once

#include <array>
#include <cstdint>
#include <optional>
#include <string>
#include <vector>

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "server/batch_service.h"
#include "server/cache_pins.h"
#include "server/key_quota.h"
#include "server/trace_exporter.h"

namespace headrace {

// At an exposition.
struct EdgeStats {
  const BatchCounts* batches = nullptr;  // nullptr: no batches are kept
  struct Key {
    std::string name;
    std::array<uint64_t, kQuotaKindCount> refusals{};
  };
  std::vector<Key> keys;  // those with limits
  struct OpenRequests {
    std::string key;
    int64_t running = 0, waiting = 0;
  };
  std::vector<OpenRequests> requests;  // of those that have some, where the server has keys
  std::vector<PinCounts> pins;
  std::optional<TraceCounts> traces;  // none: none are sent
};

// Not thread-safe.
class EdgeMetrics {
 public:
  // `labels`: of every series. The registry must outlive this.
  EdgeMetrics(prometheus::Registry& registry, prometheus::Labels labels);

  void set(const EdgeStats& edge);

 private:
  using Labels = prometheus::Labels;
  Labels labels_with(std::initializer_list<Labels::value_type> more) const;
  void set_batches(const BatchCounts& counts);
  void set_of_key(prometheus::Family<prometheus::Gauge>& family, Labels labels, int64_t value);
  void set_pins(const std::vector<PinCounts>& pins);
  void set_requests(const std::vector<EdgeStats::OpenRequests>& requests);

  const Labels labels_;
  prometheus::Family<prometheus::Gauge>& batches_;
  prometheus::Family<prometheus::Gauge>& batch_files_;
  prometheus::Family<prometheus::Gauge>& batch_bytes_;
  prometheus::Family<prometheus::Counter>& quota_refusals_;
  prometheus::Family<prometheus::Gauge>& requests_;
  prometheus::Family<prometheus::Gauge>& pins_;
  prometheus::Family<prometheus::Gauge>& pinned_tokens_;
  prometheus::Family<prometheus::Counter>& spans_;
  std::vector<std::pair<prometheus::Family<prometheus::Gauge>*, prometheus::Gauge*>> owners_seen_;
};

}  // namespace headrace
