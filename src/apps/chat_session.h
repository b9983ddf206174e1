// A chat: its messages, who answers, how answers are sampled, what they took. Knows no terminal:
// what it has to say goes to `say`.
#pragma once

#include <functional>
#include <memory>
#include <optional>
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
  // Another chat, or none.
  void replace(Conversation conversation);
  const Conversation& conversation() const { return conversation_; }
  ChatBackend& backend() { return backend_; }
  ChatSampling& sampling() { return sampling_; }
  const AnswerTimings& totals() const { return totals_; }
  int answers() const { return answers_; }

  // What the user says next, again, or instead of the last message. begin_answer() is due then.
  void ask(std::string_view text);
  bool ask_again();                         // false: the user said nothing
  bool ask_instead(std::string_view text);  // false: the same
  // The user's last message, whether it was answered or not.
  std::optional<std::string> last_question() const;

  // Starts the answer to what the user said last. Where the conversation has outgrown the context,
  // the prompt is without its oldest turns, and say() tells. After an error all is as it was before
  // the user asked.
  Result<std::unique_ptr<ChatAnswer>> begin_answer();
  // Keeps what the model said and what it took. An interrupted answer is kept as far as it came.
  // After an empty one all is as it was before the user asked: templates and servers refuse chats
  // with empty answers. What was asked is what ask_again() means.
  void end_answer(const ChatAnswer& answer, std::string_view text);

 private:
  Result<Json> prompt_messages() const;
  void begin_asking();
  void put_back();

  ChatBackend& backend_;
  ChatSampling sampling_;
  const Say say_;
  Conversation conversation_;
  Conversation before_;                     // the user asked
  std::optional<Conversation> unanswered_;  // as it was asked last, if that had no answer
  AnswerTimings totals_;
  int answers_ = 0;
};

// "temperature 0.7" -> the parameter of that name. kInvalidArgument names what is wrong.
Status set_parameter(SamplingParams& sampling, std::string_view name, std::string_view value);

// "temperature, top_p, ...": what set_parameter() takes.
std::string parameter_names();

}  // namespace headrace
