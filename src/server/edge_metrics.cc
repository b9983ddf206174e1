#include "server/edge_metrics.h"

#include <utility>

namespace headrace {
namespace {

prometheus::Family<prometheus::Gauge>& gauges(prometheus::Registry& registry, const char* name,
                                              const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Family<prometheus::Counter>& counters(prometheus::Registry& registry, const char* name,
                                                  const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry);
}

void raise_to(prometheus::Counter& counter, uint64_t value) {
  counter.Increment(static_cast<double>(value) - counter.Value());
}

}  // namespace

EdgeMetrics::EdgeMetrics(prometheus::Registry& registry, Labels labels)
    : labels_(std::move(labels)),
      batches_(gauges(registry, "headrace:batches", "Batches of /v1/batches, by status.")),
      batch_files_(gauges(registry, "headrace:batch_files", "Files of /v1/files.")),
      batch_bytes_(
          gauges(registry, "headrace:batch_file_bytes", "Bytes of the files of /v1/files.")),
      quota_refusals_(counters(registry, "headrace:quota_refusals_total",
                               "Requests over a limit of their API key, by key and limit.")),
      requests_(gauges(registry, "headrace:requests_open",
                       "Requests under way by API key and state: running, or waiting.")),
      pins_(gauges(registry, "headrace:cache_pins",
                   "Prompts that clients asked to keep, by API key.")),
      pinned_tokens_(gauges(registry, "headrace:cache_pinned_tokens", "Their tokens.")),
      spans_(counters(registry, "headrace:trace_spans_total",
                      "Spans of requests, by outcome: sent to the collector, or dropped.")) {}

EdgeMetrics::Labels EdgeMetrics::labels_with(std::initializer_list<Labels::value_type> more) const {
  Labels labels = labels_;
  labels.insert(more);
  return labels;
}

void EdgeMetrics::set_batches(const BatchCounts& counts) {
  batch_files_.Add(labels_).Set(static_cast<double>(counts.files));
  batch_bytes_.Add(labels_).Set(static_cast<double>(counts.bytes));
  for (int i = 0; i < kBatchStatusCount; ++i) {
    const std::string status(batch_status_name(static_cast<BatchStatus>(i)));
    batches_.Add(labels_with({{"status", status}}))
        .Set(static_cast<double>(counts.batches[static_cast<size_t>(i)]));
  }
}

// Until the next exposition.
void EdgeMetrics::set_of_key(prometheus::Family<prometheus::Gauge>& family, Labels labels,
                             int64_t value) {
  prometheus::Gauge& gauge = family.Add(labels);
  gauge.Set(static_cast<double>(value));
  owners_seen_.emplace_back(&family, &gauge);
}

void EdgeMetrics::set_pins(const std::vector<PinCounts>& pins) {
  for (const PinCounts& counts : pins) {
    set_of_key(pins_, labels_with({{"key", counts.owner}}), counts.pins);
    set_of_key(pinned_tokens_, labels_with({{"key", counts.owner}}), counts.tokens);
  }
}

void EdgeMetrics::set_requests(const std::vector<EdgeStats::OpenRequests>& requests) {
  for (const auto& [key, running, waiting] : requests) {
    set_of_key(requests_, labels_with({{"key", key}, {"state", "running"}}), running);
    set_of_key(requests_, labels_with({{"key", key}, {"state", "waiting"}}), waiting);
  }
}

void EdgeMetrics::set(const EdgeStats& edge) {
  if (edge.batches) set_batches(*edge.batches);
  // Keys that have nothing any more disappear.
  for (auto& [family, gauge] : owners_seen_) family->Remove(gauge);
  owners_seen_.clear();
  set_pins(edge.pins);
  set_requests(edge.requests);
  for (const EdgeStats::Key& key : edge.keys) {
    for (int i = 0; i < kQuotaKindCount; ++i) {
      const std::string limit(quota_kind_name(static_cast<QuotaKind>(i)));
      raise_to(quota_refusals_.Add(labels_with({{"key", key.name}, {"limit", limit}})),
               key.refusals[static_cast<size_t>(i)]);
    }
  }
  if (edge.traces) {
    raise_to(spans_.Add(labels_with({{"outcome", "sent"}})), edge.traces->sent);
    raise_to(spans_.Add(labels_with({{"outcome", "dropped"}})), edge.traces->dropped);
  }
}

}  // namespace headrace
