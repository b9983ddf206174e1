#include "server/engine_metrics.h"

#include <utility>
#include <vector>

namespace headrace {
namespace {

using EngineBuckets = prometheus::Histogram::BucketBoundaries;

const EngineBuckets kStepTokens(kStepTokenBounds.begin(), kStepTokenBounds.end());
const EngineBuckets kPageTimes(kPageTimeBounds.begin(), kPageTimeBounds.end());

prometheus::Counter& engine_counter(prometheus::Registry& registry,
                                    const prometheus::Labels& labels, const char* name,
                                    const char* help) {
  return prometheus::BuildCounter().Name(name).Help(help).Register(registry).Add(labels);
}

prometheus::Histogram& engine_histogram(prometheus::Registry& registry,
                                        const prometheus::Labels& labels, const char* name,
                                        const char* help, const EngineBuckets& buckets) {
  return prometheus::BuildHistogram().Name(name).Help(help).Register(registry).Add(labels, buckets);
}

// `now` and `seen`: sums of observations by bucket.
template <class Counts>
void observe_more(prometheus::Histogram& histogram, const Counts& now, const Counts& seen,
                  double sum) {
  std::vector<double> more;
  for (size_t i = 0; i < now.size(); ++i) more.push_back(static_cast<double>(now[i] - seen[i]));
  histogram.ObserveMultiple(more, sum);
}

}  // namespace

EngineMetrics::EngineMetrics(prometheus::Registry& registry, prometheus::Labels labels)
    : labels_(std::move(labels)),
      steps_(engine_counter(registry, labels_, "headrace:steps_total", "Steps of the engine.")),
      step_tokens_(engine_histogram(registry, labels_, "vllm:iteration_tokens_total",
                                    "Tokens of an engine step.", kStepTokens)),
      device_seconds_(
          engine_counter(registry, labels_, "headrace:device_seconds_total",
                         "Kernels of steps, on the GPU's clock; of stages their mean.")),
      device_gap_seconds_(
          engine_counter(registry, labels_, "headrace:device_gap_seconds_total",
                         "GPU, or stages on average, idle between steps while there was work.")),
      step_cost_(prometheus::BuildGauge()
                     .Name("headrace:step_cost_seconds")
                     .Help("What steps cost, fitted as they run (sched/step_cost.h), by term.")
                     .Register(registry)),
      host_seconds_(prometheus::BuildCounter()
                        .Name("headrace:host_seconds_total")
                        .Help("The engine thread's work, by phase of a step.")
                        .Register(registry)),
      operations_(
          engine_counter(registry, labels_, "vllm:estimated_flops_per_gpu_total",
                         "Operations of steps on a device, estimated by the model's sizes.")),
      read_bytes_(engine_counter(
          registry, labels_, "vllm:estimated_read_bytes_per_gpu_total",
          "Bytes of weights, keys and values that steps read on a device, estimated likewise.")),
      written_bytes_(engine_counter(
          registry, labels_, "vllm:estimated_write_bytes_per_gpu_total",
          "Bytes of keys and values that steps wrote on a device, estimated likewise.")),
      page_lifetime_(engine_histogram(
          registry, labels_, "vllm:kv_block_lifetime_seconds",
          "Of evicted pages of the prefix cache: since they came into it.", kPageTimes)),
      page_idle_(engine_histogram(registry, labels_, "vllm:kv_block_idle_before_evict_seconds",
                                  "Of evicted pages of the prefix cache: since a request had them.",
                                  kPageTimes)),
      page_reuse_gap_(engine_histogram(registry, labels_, "vllm:kv_block_reuse_gap_seconds",
                                       "Of pages that a request found: since their last use.",
                                       kPageTimes)) {}

void EngineMetrics::add(const EngineStats& now, const EngineStats& seen) {
  steps_.Increment(static_cast<double>(now.steps - seen.steps));
  observe_more(step_tokens_, now.steps_by_tokens, seen.steps_by_tokens,
               static_cast<double>(now.step_tokens_total - seen.step_tokens_total));
  operations_.Increment(now.work.operations - seen.work.operations);
  read_bytes_.Increment(now.work.read_bytes - seen.work.read_bytes);
  written_bytes_.Increment(now.work.written_bytes - seen.work.written_bytes);
  add_times(now, seen);
  add_page_times(now.scheduler.page_times, seen.scheduler.page_times);
}

void EngineMetrics::add_times(const EngineStats& now, const EngineStats& seen) {
  device_seconds_.Increment(now.device_seconds_total - seen.device_seconds_total);
  device_gap_seconds_.Increment(now.device_gap_seconds_total - seen.device_gap_seconds_total);
  const HostSeconds host = now.host - seen.host;
  for (size_t i = 0; i < kHostPhaseCount; ++i) {
    prometheus::Labels labels = labels_;
    labels.emplace("phase", kHostPhaseNames[i]);
    host_seconds_.Add(labels).Increment(host[static_cast<HostPhase>(i)]);
  }
  for (const StepCostTerm& field : kStepCostTerms) {
    prometheus::Labels labels = labels_;
    labels.emplace("term", field.name);
    step_cost_.Add(labels).Set(now.scheduler.step_cost.*field.coefficient);
  }
}

void EngineMetrics::add_page_times(const PageTimeStats& now, const PageTimeStats& seen) {
  observe_more(page_lifetime_, now.lifetime.counts, seen.lifetime.counts,
               now.lifetime.sum - seen.lifetime.sum);
  observe_more(page_idle_, now.idle.counts, seen.idle.counts, now.idle.sum - seen.idle.sum);
  observe_more(page_reuse_gap_, now.reuse_gap.counts, seen.reuse_gap.counts,
               now.reuse_gap.sum - seen.reuse_gap.sum);
}

}  // namespace headrace
