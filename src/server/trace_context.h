// Where a request stands in a distributed trace, as its headers say (W3C Trace Context, level 1:
// https://www.w3.org/TR/trace-context/).
#pragma once

#include <string>
#include <string_view>

#include "server/http_message.h"

namespace headrace {

struct TraceContext {
  std::string trace_id;   // 32 hex digits
  std::string parent_id;  // 16, of the caller's span; empty: the trace begins here
  std::string state;      // `tracestate` as it came
  bool sampled = true;    // else whoever began the trace does not want it recorded
};

// Printable ASCII and spaces, `bytes_max` at most: a header's value that can be passed on.
bool is_field_value(std::string_view text, size_t bytes_max);

// Of `traceparent` and `tracestate`; a new trace where they are missing or malformed.
TraceContext trace_context_of(const HttpRequest& request);

}  // namespace headrace
