// How an answer is worded: protocols differ in nothing else of it.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "base/json.h"
#include "server/choice_stream.h"
#include "server/generation_request.h"
#include "text/output/dialect.h"

namespace headrace {

struct Usage {
  int64_t prompt_tokens = 0;
  int64_t completion_tokens = 0;
  int64_t cached_tokens = 0;                // of the prompts: found in the prefix cache
  std::optional<int64_t> reasoning_tokens;  // of the answers; none: thoughts are not told apart
  // That the model was waited for, which had to be loaded; from then to the first step, from there
  // to the first token, from there to the end.
  double load_seconds = 0, queue_seconds = 0, prompt_seconds = 0, answer_seconds = 0;

  double total_seconds() const {
    return load_seconds + queue_seconds + prompt_seconds + answer_seconds;
  }
};

// Of FinishReason::kDeadEnd, where a protocol has room for words.
inline constexpr std::string_view kDeadEndMessage =
    "no token can follow in the form that the answer must have";

// Facts of the answer as a whole.
struct AnswerHead {
  std::string id;
  int64_t created_unix_s = 0;
  std::string model;
  std::string fingerprint;                    // system_fingerprint of the OpenAI API
  std::string_view service_tier = "default";  // that the answer was made in, as OpenAI's
  bool tell_tier_in_events = false;           // the request names one
  bool return_token_ids = false;
  bool tokens_as_ids = false;
  bool tell_prompt_logprobs = false;          // as vLLM's prompt_logprobs
  int32_t top_logprobs = -1;                  // -1: no log-probabilities
  std::vector<std::vector<TokenId>> prompts;  // by prompt; n choices each
  std::vector<int64_t> prompt_tokens;         // by prompt
  int32_t choices_per_prompt = 1;

  size_t prompt_of(int32_t choice) const {
    return static_cast<size_t>(choice / choices_per_prompt);
  }
  const Tokenizer* tokenizer = nullptr;
  CallIdStyle call_ids = CallIdStyle::kCall;  // of chats
  uint64_t call_id_seed = 0;
  bool hide_reasoning = false;
};

// What tells one answer from another of the same request.
struct AnswerIdentity {
  std::string id;
  int64_t created_unix_s = 0;
  uint64_t call_id_seed = 0;
};

// Of one answer; on its strand. What is said of a choice may depend on what was said before.
class AnswerFormat {
 public:
  explicit AnswerFormat(AnswerHead head) : head_(std::move(head)) {}
  virtual ~AnswerFormat() = default;

  AnswerIdentity identity() const { return {head_.id, head_.created_unix_s, head_.call_id_seed}; }
  // Words an answer that was begun elsewhere, in its name. Before all else.
  void continue_as(AnswerIdentity begun);

  // The body of an answer that is not streamed. choices[i] has index i.
  virtual Json whole(std::span<const ChoiceDelta> choices, const Usage& usage) const = 0;
  // What stands in front of the events of a stream. Once, when the first result is there.
  virtual void append_begin(std::string& out, const Usage& usage);
  // The events of one delta, in order. `opens`: the choice's first.
  virtual std::vector<Json> events(int32_t index, bool opens, const ChoiceDelta& delta) = 0;

  // Appends the same as they are sent. `told`: the usage that each has (continuous_usage_stats);
  // nullptr: none.
  virtual void append_events(std::string& out, int32_t index, bool opens, const ChoiceDelta& delta,
                             const Usage* told);

  // The stream that the events are sent in: server-sent events, unless a protocol has others.
  virtual std::string_view content_type() const;
  virtual void append_event(std::string& out, const Json& event) const;
  virtual std::string_view ping() const;  // of a silent stream; empty: it stays silent
  // `wants_usage`: stream_options.include_usage.
  virtual void append_end(std::string& out, const Usage& usage, bool wants_usage) = 0;
  // Instead of the end.
  virtual void append_error(std::string& out, int http_status, std::string_view message);

 protected:
  AnswerHead head_;  // fixed once its events begin
};

// What ends a stream of the OpenAI API: the event with the usage, where it is wanted, and a mark.
void append_openai_end(std::string& out, std::optional<Json> usage_event);

std::unique_ptr<AnswerFormat> make_completion_format(AnswerHead head);
std::unique_ptr<AnswerFormat> make_chat_format(AnswerHead head);

Json usage_json(const Usage& usage);
Json finish_reason_json(FinishReason reason);  // null while running
Json stop_reason_json(const StopReason& reason);
// Of an answer of a search: vLLM's cumulative_logprob, and transformers' score of a sequence.
void set_beam_score(Json& choice, const ChoiceDelta& answer);
Json token_ids_json(std::span<const TokenId> ids);
// The ids of the answer's own tokens in `delta`.
Json answer_token_ids_json(const ChoiceDelta& delta);
// The API's name of a call: a function of the head's seed and both numbers.
std::string call_id(const AnswerHead& head, int32_t choice, int32_t call);
// The bytes of a token, as numbers.
Json token_bytes_json(const AnswerHead& head, TokenId token);
// vLLM's prompt_logprobs: of each token of the prompt but the first, which is null, an object of
// token ids, the prompt's own and the best.
Json prompt_logprobs_json(const AnswerHead& head, std::span<const TokenLogprobs> logprobs);
// -inf becomes -9999.0, which JSON can say; every other value keeps its bits.
Json logprob_json(float logprob);
// How a token is written where JSON needs text: its text; "bytes:\xe2\x80" where the bytes alone
// are no characters (the form of the OpenAI API); "token_id:123" when ids are asked for.
std::string token_text(const AnswerHead& head, TokenId token);

}  // namespace headrace
