// Traces: requests with their moments of arrival and their true lengths, made from a seed or read
// from a file (trace_file.h). What the replay in virtual time (trace_replay.h), `bench serve`
// and the ablations run on.
#pragma once

#include <cstdint>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"

namespace headrace {

// Tokens of a prompt: those of one content are always the same, so that prompts which begin with
// the same spans share a prefix.
struct PromptSpan {
  uint64_t content = 0;
  int32_t tokens = 0;
  friend bool operator==(const PromptSpan&, const PromptSpan&) = default;
};

struct TraceRequest {
  double arrival_seconds = 0;
  std::vector<PromptSpan> prompt;
  int32_t output = 1;       // true length: the scheduler learns it when it ends
  int32_t max_tokens = 16;  // what the client allows
  std::string tenant;
  int32_t priority = 0;
  int32_t slo_class = 0;
  bool background = false;  // fills idle capacity (Request::background)

  int32_t prompt_tokens() const;
};

// The ids of its prompt, in [1, vocab_size).
std::vector<TokenId> prompt_of(const TraceRequest& request, int32_t vocab_size);

struct TraceOptions {
  std::string kind = "conversation";  // trace_kinds()
  int32_t requests = 0;               // 0: 2,000
  double rate = 0;                    // requests a second, over the whole trace; 0: 10
  // When they come. poisson; gamma: gaps of a Gamma distribution of shape `burstiness` (1 is
  // Poisson, less comes in bursts; the gaps' coefficient of variation is 1 / sqrt(burstiness));
  // diurnal: Poisson with a rate that swings between 0.2 and 1.8 x rate in `period_seconds`.
  std::string arrivals = "poisson";  // arrival_kinds()
  double burstiness = 1;
  double period_seconds = 600;
  int32_t max_model_len = 4096;
  uint64_t seed = 1;
};

// By kind:
//   conversation   log-normal lengths, about 1,155 in and 211 out (Azure's conversation trace)
//   sharegpt       log-normal lengths, about 223 in and 211 out, 4 to 1,024
//   summarisation  about 6,000 in and 200 out
//   heavy-tail     prompts of 32 to 256, log-normal outputs of median 64 and sigma 1.5
//   learnable      sixteen kinds of task, told by the prompt's first tokens, each of its own length
//   random         the same lengths, told by nothing
//   agentic        forty agents: a system prompt of 1,024 to 3,072 tokens each, growing turns
//   flood          one tenant sends fifty times what the other sends
//   flood-chat     the same with the lengths of conversation
//   long-prompts   32 answers of up to 4,096 tokens that begin together, and a prompt as long as
//                  the context allows every 1 / rate seconds
//   batch-beside   sharegpt, live at `rate`, beside as many background requests, there from the
//                  start
// kInvalidArgument names the kinds there are.
Result<std::vector<TraceRequest>> make_trace(const TraceOptions& options);
std::vector<std::string> trace_kinds();
std::vector<std::string> arrival_kinds();

}  // namespace headrace
