// What completions and chat requests ask for in common, and the two kinds of request.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "sched/request.h"
#include "server/request_fields.h"
#include "text/grammar/answer_grammar.h"

namespace headrace {

// What a request says of a search.
struct SearchSettings {
  bool wanted = false;
  std::optional<int32_t> width;  // beam_width or best_of
  float length_penalty = 1;
  EarlyStopping early_stopping = EarlyStopping::kNo;
};

// service_tier: there is one of live requests.
enum class ServiceTier : uint8_t {
  kUnsaid,
  kDefault,
  kFlex,  // the background: what others leave idle
};

struct GenerationSettings {
  std::string model;        // empty: the first served name
  std::string shown_model;  // what the answer calls it; empty: the same
  SamplingParams sampling;
  SearchSettings search;
  std::optional<BeamOptions> beams;  // made of it (beam_fields.h); none: answers are sampled
  std::optional<int32_t> max_tokens;
  bool to_context_end = false;  // max_tokens -1: what the context leaves, also of a completion
  bool stream = false;
  bool include_usage = false;     // stream_options
  bool continuous_usage = false;  // stream_options.continuous_usage_stats
  std::vector<std::string> stops;
  bool include_stop = false;
  bool skip_special = true;
  std::optional<bool> add_special;  // default: true for completions, false for chat
  bool tokens_as_ids = false;       // return_tokens_as_token_ids: "token_id:123" for texts
  bool return_token_ids = false;
  bool tell_prompt_logprobs = false;   // prompt_logprobs, apart from those of echo
  std::optional<int32_t> prompt_last;  // truncate_prompt_tokens; -1: as many as leave room
  std::string request_id;              // of the answer's id; empty: one is made
  int32_t priority = 0;
  int32_t slo_class = 0;  // index into the engine's
  ServiceTier tier = ServiceTier::kUnsaid;
  std::string tenant;  // user; a server with API keys goes by the key instead
  std::string cache_salt;
  double pin_seconds = 0;               // the prompts stay in the cache so long; 0: as others
  AnswerForm form;                      // of the words; of a chat, behind its thoughts
  std::vector<TokenId> allowed_tokens;  // allowed_token_ids; empty: all
  std::vector<std::string> bad_words;
  std::vector<std::string> dry_breakers = {"\n", ":", "\"", "*"};  // dry_sequence_breakers
};

struct CompletionRequest {
  GenerationSettings settings;
  // Exactly one of the two has entries: texts are encoded, ids are taken as they are.
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  bool echo = false;
  bool parse_special = false;  // text that spells a control token becomes one only when asked
  std::string suffix;          // what stands behind the answer, which fills in before it
};

// Where the thoughts of an answer go.
enum class ReasoningForm : uint8_t { kApart, kInContent, kHidden };

struct ChatRequest {
  GenerationSettings settings;
  Json messages;  // as parse_messages() gives them
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  std::string reasoning_effort;           // empty: the template's own
  std::optional<int32_t> thought_tokens;  // the most of an answer's thoughts; none: no bound
  ReasoningForm reasoning = ReasoningForm::kApart;
  bool reads_calls = false;         // the model may call the tools
  bool parallel_tool_calls = true;  // false: the answer ends with its first call
  CallForm calls;                   // which calls there must be, and of which form
  Json template_variables;          // tools, documents, chat_template_kwargs: an object or null
};

// The rows by which requests are read. A row's name is the JSON key.
std::span<const Field<GenerationSettings>> generation_fields();
std::span<const Field<CompletionRequest>> completion_fields();
std::span<const Field<ChatRequest>> chat_fields();

// Bounds that are configured, and rules between fields. `logprobs_name`: of the field that says how
// many log-probabilities are told.
Status check_settings(const GenerationSettings& settings, const FieldContext& context,
                      std::string_view logprobs_name);
// The last tokens that penalties of llama.cpp and Ollama look at where a request does not say.
inline constexpr int32_t kLlamaPenaltyWindow = 64;
// repeat_last_n 0: penalties that look at no token are none.
void ignore_empty_penalty_window(GenerationSettings& settings);
// Readers that protocols share. Stop strings under the protocol's name of them:
Status read_stop_strings(std::string_view name, const Json& value, const FieldContext& context,
                         GenerationSettings& settings);
// kInvalidArgument with the field's name. Any thread, no side effects.
Result<CompletionRequest> parse_completion_request(const Json& body, const FieldContext& context);
Result<ChatRequest> parse_chat_request(const Json& body, const FieldContext& context);

}  // namespace headrace
