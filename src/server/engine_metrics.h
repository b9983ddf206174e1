// What the engine says of its steps: how many, how large, how long, what they took of the device,
// and how long pages stay in its prefix cache.
#pragma once

#include <prometheus/counter.h>
#include <prometheus/gauge.h>
#include <prometheus/histogram.h>
#include <prometheus/registry.h>

#include "engine/engine.h"

namespace headrace {

// Not thread-safe.
class EngineMetrics {
 public:
  // `labels`: of every series. The registry must outlive this.
  EngineMetrics(prometheus::Registry& registry, prometheus::Labels labels);

  // What was added since `seen`, which an exposition told before.
  void add(const EngineStats& now, const EngineStats& seen);

 private:
  void add_times(const EngineStats& now, const EngineStats& seen);
  void add_page_times(const PageTimeStats& now, const PageTimeStats& seen);

  const prometheus::Labels labels_;
  prometheus::Counter& steps_;
  prometheus::Histogram& step_tokens_;
  prometheus::Counter& device_seconds_;
  prometheus::Counter& device_gap_seconds_;
  prometheus::Family<prometheus::Gauge>& step_cost_;
  prometheus::Family<prometheus::Counter>& host_seconds_;
  // vLLM's names: of a CPU, too.
  prometheus::Counter& operations_;
  prometheus::Counter& read_bytes_;
  prometheus::Counter& written_bytes_;
  prometheus::Histogram& page_lifetime_;
  prometheus::Histogram& page_idle_;
  prometheus::Histogram& page_reuse_gap_;
};

}  // namespace headrace
