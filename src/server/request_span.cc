#include "server/request_span.h"

#include <chrono>

namespace headrace {

Span request_span(const RequestTrace& trace, const std::string& model,
                  const SamplingParams& sampling, const RequestTimes& times, FinishReason reason) {
  Span span;
  span.context = trace.context;
  span.name = "llm_request";
  span.end_unix_ns = std::chrono::duration_cast<std::chrono::nanoseconds>(
                         std::chrono::system_clock::now().time_since_epoch())
                         .count();
  span.begin_unix_ns = span.end_unix_ns - static_cast<int64_t>(times.total * 1e9);
  if (reason != FinishReason::kNone) span.error = finish_reason_name(reason);
  span.attributes = {
      {"gen_ai.request.id", trace.request_id},
      {"gen_ai.response.model", model},
      {"gen_ai.request.max_tokens", int64_t{times.max_tokens}},
      {"gen_ai.request.temperature", static_cast<double>(sampling.temperature)},
      {"gen_ai.request.top_p", static_cast<double>(sampling.top_p)},
      {"gen_ai.request.n", int64_t{sampling.n}},
      {"gen_ai.usage.num_sequences", int64_t{times.choices}},
      {"gen_ai.usage.prompt_tokens", times.prompt_tokens},
      {"gen_ai.usage.completion_tokens", times.generation_tokens},
      {"gen_ai.latency.time_in_queue", times.queue},
      {"gen_ai.latency.time_in_model_prefill", times.prompt},
      {"gen_ai.latency.time_in_model_decode", times.answer},
      {"gen_ai.latency.time_in_model_inference", times.prompt + times.answer},
      {"gen_ai.latency.e2e", times.total},
  };
  if (times.first_token >= 0) {
    span.attributes.emplace_back("gen_ai.latency.time_to_first_token", times.first_token);
  }
  return span;
}

}  // namespace headrace
