#include "server/gateway_metrics.h"

#include <chrono>
#include <utility>

#include <fmt/format.h>
#include <fmt/ranges.h>

namespace headrace {
namespace {

prometheus::Family<prometheus::Gauge>& family(prometheus::Registry& registry, const char* name,
                                              const char* help) {
  return prometheus::BuildGauge().Name(name).Help(help).Register(registry);
}

prometheus::Gauge& waiting(prometheus::Registry& registry, prometheus::Labels labels,
                           const char* reason) {
  labels.emplace("reason", reason);
  return family(registry, "vllm:num_requests_waiting_by_reason",
                "Requests in the queue, by what they wait for.")
      .Add(labels);
}

}  // namespace

GatewayMetrics::GatewayMetrics(prometheus::Registry& registry, prometheus::Labels labels)
    : labels_(std::move(labels)),
      capacity_(waiting(registry, labels_, "capacity")),
      deferred_(waiting(registry, labels_, "deferred")),
      sleep_(family(registry, "vllm:engine_sleep_state", "1 for the state that the engine is in.")),
      adapters_(family(registry, "vllm:lora_requests_info",
                       "Adapters of requests that run and wait; the value is the time.")) {}

GatewayMetrics::Labels GatewayMetrics::labels_with(
    std::initializer_list<Labels::value_type> more) const {
  Labels labels = labels_;
  labels.insert(more);
  return labels;
}

void GatewayMetrics::set(const SchedulerStats& stats, bool awake) {
  capacity_.Set(stats.waiting);
  deferred_.Set(stats.background_waiting);
  for (const auto& [state, is] :
       {std::pair{"awake", awake}, {"weights_offloaded", false}, {"discard_all", !awake}}) {
    sleep_.Add(labels_with({{"sleep_state", state}})).Set(is);
  }
}

// The names are labels: other ones are another series. Its value is the time, by which gateways
// tell the newest from those before it where a server keeps them.
void GatewayMetrics::set(const OpenAdapters& adapters) {
  if (adapters_seen_ != nullptr) adapters_.Remove(adapters_seen_);
  adapters_seen_ = &adapters_.Add(
      labels_with({{"running_lora_adapters", fmt::format("{}", fmt::join(adapters.running, ","))},
                   {"waiting_lora_adapters", fmt::format("{}", fmt::join(adapters.waiting, ","))},
                   {"max_lora", std::to_string(adapters.count_max)}}));
  const auto now = std::chrono::system_clock::now().time_since_epoch();
  adapters_seen_->Set(std::chrono::duration<double>(now).count());
}

}  // namespace headrace
