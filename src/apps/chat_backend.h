// Who answers in a chat: a model in this process, or a server.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/answer.h"
#include "base/json.h"
#include "base/sampling_params.h"
#include "base/status.h"

namespace headrace {

struct ChatDelta {
  std::string text;      // whole characters
  bool thought = false;  // of what the model thinks before it answers
};

// How a chat's tokens are chosen.
struct ChatSampling {
  SamplingParams params;           // max_tokens < 0: as many as the context holds
  std::vector<std::string> named;  // what somebody chose: the rest is the backend's own to say
  std::vector<std::string> stops;

  void name(std::string_view parameter);
};

// An answer under way. One thread, but for cancel().
class ChatAnswer {
 public:
  virtual ~ChatAnswer() = default;

  // Waits for more. Empty at the end; then the rest is final.
  virtual std::optional<ChatDelta> next() = 0;
  virtual void cancel() = 0;  // any thread
  // What broke the answer off, if it was not cancel().
  virtual Status status() const = 0;
  // Of an answer that a server gave, as its client saw them.
  virtual AnswerTimings timings() const = 0;
};

// One thread.
class ChatBackend {
 public:
  virtual ~ChatBackend() = default;

  virtual std::string title() const = 0;  // one line for a person
  // `messages`: of roles and contents; what comes next is the model's.
  virtual Result<std::unique_ptr<ChatAnswer>> answer(const Json& messages,
                                                     const ChatSampling& sampling) = 0;
  // Tokens of a prompt of these messages. kUnsupported: it cannot say.
  virtual Result<int64_t> count_tokens(const Json& messages) = 0;
  virtual int64_t context_tokens() const = 0;  // 0: it cannot say

  // What use_model() takes, as far as that is known.
  virtual Result<std::vector<std::string>> models() = 0;
  // Ends a models() or use_model() that waits for somebody else; if there is none, nothing. Any
  // thread.
  virtual void cancel_request() {}
  // From the next answer on. An error leaves all as it was.
  virtual Status use_model(const std::string& name) = 0;
};

}  // namespace headrace
