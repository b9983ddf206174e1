// What a trace tells of a request, under the names that vLLM gives it; never a word of its text.
#pragma once

#include <string>

#include "base/sampling_params.h"
#include "sched/request.h"
#include "server/server_metrics.h"
#include "server/trace_exporter.h"

namespace headrace {

// What a span needs of a request from its headers.
struct RequestTrace {
  TraceContext context;
  std::string request_id;  // X-Request-Id
};

// The span `llm_request`, which ends now. `reason`: how the request failed; kNone: it did not.
Span request_span(const RequestTrace& trace, const std::string& model,
                  const SamplingParams& sampling, const RequestTimes& times, FinishReason reason);

}  // namespace headrace
