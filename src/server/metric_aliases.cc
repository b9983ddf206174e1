#include "server/metric_aliases.h"

#include <algorithm>
#include <string_view>
#include <utility>

namespace headrace {
namespace {

struct MetricAlias {
  std::string_view name;
  std::string_view of;
};

constexpr MetricAlias kAliases[] = {
    // vLLM before its engine V1.
    {"vllm:gpu_cache_usage_perc", "vllm:kv_cache_usage_perc"},
    {"vllm:time_per_output_token_seconds", "vllm:inter_token_latency_seconds"},
    // SGLang.
    {"sglang:num_running_reqs", "vllm:num_requests_running"},
    {"sglang:num_queue_reqs", "vllm:num_requests_waiting"},
    {"sglang:token_usage", "vllm:kv_cache_usage_perc"},
    {"sglang:prompt_tokens_total", "vllm:prompt_tokens_total"},
    {"sglang:generation_tokens_total", "vllm:generation_tokens_total"},
    {"sglang:cached_tokens_total", "vllm:prompt_tokens_cached_total"},
    {"sglang:num_retracted_reqs", "vllm:num_preemptions_total"},
    {"sglang:time_to_first_token_seconds", "vllm:time_to_first_token_seconds"},
    {"sglang:inter_token_latency_seconds", "vllm:inter_token_latency_seconds"},
    {"sglang:e2e_request_latency_seconds", "vllm:e2e_request_latency_seconds"},
    {"sglang:queue_time_seconds", "vllm:request_queue_time_seconds"},
};

}  // namespace

void add_metric_aliases(std::vector<prometheus::MetricFamily>& families) {
  const size_t own = families.size();
  for (const MetricAlias& alias : kAliases) {
    const auto end = families.begin() + static_cast<std::ptrdiff_t>(own);
    const auto found = std::find_if(families.begin(), end,
                                    [&](const auto& family) { return family.name == alias.of; });
    if (found == end) continue;
    prometheus::MetricFamily copy = *found;
    copy.name = alias.name;
    copy.help = std::string(alias.of) + " under another name.";
    families.push_back(std::move(copy));
  }
}

}  // namespace headrace
