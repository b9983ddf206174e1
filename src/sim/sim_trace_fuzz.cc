// libFuzzer target: trace files, from bytes to requests that a replay can take.
#include <cstddef>
#include <cstdint>
#include <string_view>

#include "base/check.h"
#include "sim/trace_file.h"

extern "C" int LLVMFuzzerTestOneInput(const uint8_t* data, size_t size) {
  using namespace headrace;
  auto trace = parse_trace({reinterpret_cast<const char*>(data), size}, "fuzz");
  if (!trace.ok()) {
    CHECK(trace.status().code() == StatusCode::kInvalidArgument);
    return 0;
  }
  double last = 0;
  for (const TraceRequest& request : *trace) {
    CHECK(request.arrival_seconds >= last);
    last = request.arrival_seconds;
    CHECK(request.prompt_tokens() > 0 && request.output > 0);
    CHECK(request.output <= request.max_tokens);
  }
  constexpr int32_t kContext = 256;
  if (!fit_trace(*trace, kContext, TooLong::kCut).ok()) return 0;
  for (const TraceRequest& request : *trace) {
    CHECK(request.prompt_tokens() + request.max_tokens <= kContext);
    CHECK(static_cast<int32_t>(prompt_of(request, 100).size()) == request.prompt_tokens());
  }
  return 0;
}
