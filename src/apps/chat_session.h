// A conversation: its messages, how it is sampled, and the commands that change either. Knows no
// terminal: what it has to say goes to `say`.
#pragma once

#include <functional>
#include <memory>
#include <string>
#include <string_view>

#include "apps/answer.h"
#include "base/json.h"
#include "base/status.h"
#include "stack/model_stack.h"

namespace headrace {

struct ChatOptions {
  SamplingParams sampling;
  std::vector<std::string> stops;
  std::string system;  // empty: what the template says by itself
};

class ChatSession {
 public:
  enum class Next { kRead, kAnswer, kExit };
  using Say = std::function<void(std::string_view line)>;

  // `stack` must outlive this and have a chat template.
  ChatSession(ModelStack& stack, ChatOptions options, Say say);

  // A command ("/help") or a message of the user. kAnswer: begin_answer() is due.
  Next take(std::string_view input);

  // Starts the answer to what the user said last. Where the conversation has outgrown the context,
  // its oldest turns go first, and say() tells. An error leaves the message out.
  Result<std::unique_ptr<Answer>> begin_answer();
  // Keeps what the model said and what it took. An interrupted answer is kept as far as it came.
  void end_answer(const Answer& answer, std::string text);

  const Json& messages() const { return messages_; }  // without the system message

 private:
  struct Command {
    std::string_view name, argument, summary;
    Next (ChatSession::*run)(std::string_view argument);
  };
  static const Command kCommands[];

  Next help(std::string_view);
  Next exit(std::string_view) { return Next::kExit; }
  Next clear(std::string_view);
  Next set_system(std::string_view text);
  Next save(std::string_view path);
  Next load(std::string_view path);
  Next regenerate(std::string_view);
  Next set(std::string_view assignment);
  Next show_stats(std::string_view);

  Result<std::vector<TokenId>> encode() const;
  // False: nothing is left that could go.
  bool drop_oldest_turn();

  ModelStack& stack_;
  ChatOptions options_;
  const Say say_;
  Json messages_ = Json::array();
  AnswerTimings totals_;
  int answers_ = 0;
};

// "temperature 0.7" -> the parameter of that name. kInvalidArgument names what is wrong.
Status set_parameter(SamplingParams& sampling, std::string_view name, std::string_view value);

// Messages as a file holds them: an array of {"role", "content"} with texts.
Result<Json> parse_messages(std::string_view text);

}  // namespace headrace
