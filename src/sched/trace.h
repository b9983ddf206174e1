// Traces: requests with their moments of arrival and their true lengths, made from a seed. What the
// replay (trace_replay.h) and the ablations run on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

struct TraceRequest {
  double arrival_seconds = 0;
  std::vector<TokenId> prompt;
  int32_t output = 1;       // true length: the scheduler learns it when it ends
  int32_t max_tokens = 16;  // what the client allows
  std::string tenant;
  int32_t priority = 0;
  int32_t slo_class = 0;
};

struct TraceOptions {
  std::string kind = "conversation";  // trace_kinds()
  int32_t requests = 2000;
  double rate = 10;  // requests a second, Poisson
  int32_t max_model_len = 4096;
  uint64_t seed = 1;
};

// By kind:
//   conversation  log-normal lengths, about 1,155 in and 211 out (Azure's conversation trace)
//   sharegpt      log-normal lengths, about 223 in and 211 out, 4 to 1,024
//   heavy-tail    prompts of 32 to 256, log-normal outputs of median 64 and sigma 1.5
//   learnable     sixteen kinds of task, told by the prompt's first tokens, each with its own
//   length random        the same lengths, told by nothing agentic       forty agents: a system
//   prompt of 1,024 to 3,072 tokens each, then turns that grow flood         one tenant sends fifty
//   times what the other sends
// kInvalidArgument names the kinds there are.
Result<std::vector<TraceRequest>> make_trace(const TraceOptions& options);
std::vector<std::string> trace_kinds();

}  // namespace headrace
