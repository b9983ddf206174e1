// What gateways route by: what waits for what, whether the engine is awake, which adapters are
// used.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include <prometheus/gauge.h>
#include <prometheus/registry.h>

#include "sched/scheduler.h"

namespace headrace {

// Of a model: how many adapters there is room for, and the names of those of its open requests.
struct OpenAdapters {
  int32_t count_max = 0;
  std::vector<std::string> running, waiting;
};

// Under vLLM's names. Not thread-safe.
class GatewayMetrics {
 public:
  // `labels`: of every series. The registry must outlive this.
  GatewayMetrics(prometheus::Registry& registry, prometheus::Labels labels);

  void set(const SchedulerStats& stats, bool awake);
  void set(const OpenAdapters& adapters);

 private:
  using Labels = prometheus::Labels;
  Labels labels_with(std::initializer_list<Labels::value_type> more) const;

  const Labels labels_;
  prometheus::Gauge& capacity_;  // in the queue for want of room
  prometheus::Gauge& deferred_;  // background requests that wait for the others
  prometheus::Family<prometheus::Gauge>& sleep_;
  prometheus::Family<prometheus::Gauge>& adapters_;
  prometheus::Gauge* adapters_seen_ = nullptr;  // of the last exposition
};

}  // namespace headrace
