// A chat: its messages, who answers, how answers are sampled, what they took. Knows no terminal:
// what it has to say goes to `say`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "apps/chat_backend.h"
#include "apps/conversation.h"
#include "base/status.h"

namespace headrace {

class ChatSession {
 public:
  using Say = std::function<void(std::string_view line)>;

  // `backend` must outlive this.
  ChatSession(ChatBackend& backend, ChatSampling sampling, Say say);

  Conversation& conversation() { return conversation_; }
  const Conversation& conversation() const { return conversation_; }
  ChatBackend& backend() { return backend_; }
  ChatSampling& sampling() { return sampling_; }
  const AnswerTimings& totals() const { return totals_; }
  int answers() const { return answers_; }

  // Starts the answer to what the user said last. Where the conversation has outgrown the context,
  // its oldest turns go first, and say() tells. An error leaves the message out.
  Result<std::unique_ptr<ChatAnswer>> begin_answer();
  // Keeps what the model said and what it took. An interrupted answer is kept as far as it came. An
  // empty one leaves the message out: templates and servers refuse chats with empty answers.
  void end_answer(const ChatAnswer& answer, std::string_view text);

 private:
  Status make_room();

  ChatBackend& backend_;
  ChatSampling sampling_;
  const Say say_;
  Conversation conversation_;
  AnswerTimings totals_;
  int answers_ = 0;
};

// "temperature 0.7" -> the parameter of that name. kInvalidArgument names what is wrong.
Status set_parameter(SamplingParams& sampling, std::string_view name, std::string_view value);

// "temperature, top_p, ...": what set_parameter() takes.
std::string parameter_names();

}  // namespace headrace
