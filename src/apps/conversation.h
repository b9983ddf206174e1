// The messages of a chat. Plain data; what a command does to it is a method.
#pragma once

#include <optional>
#include <string>
#include <string_view>

#include "base/json.h"
#include "base/status.h"

namespace headrace {

class Conversation {
 public:
  // An array of {"role", "content"} with texts, as to_text() writes it; a first message of the
  // system is the system's. kInvalidArgument, kCorrupt for anything else.
  static Result<Conversation> parse(std::string_view text);
  std::string to_text() const;

  const Json& messages() const { return messages_; }  // without the system's
  Json all_messages() const;                          // with it, where there is one
  const std::string& system() const { return system_; }
  void set_system(std::string_view text) { system_ = text; }
  bool empty() const { return messages_.as_array().empty(); }

  void add_user(std::string_view text);
  void add_answer(std::string_view text);
  void clear() { messages_ = Json::array(); }
  // Back to where the user's last message is the last. False: the user said nothing.
  bool rewind_to_user();
  // Without the last message, which is the user's.
  void take_back();
  // A turn is all up to the user's next message.
  int turns() const;
  // A copy without its `count` oldest turns. REQUIRES: count < turns().
  Conversation without_oldest(int count) const;

  std::optional<std::string> last_of(std::string_view role) const;

 private:
  Json messages_ = Json::array();
  std::string system_;
};

// The last fenced block of code in a text of markdown; empty: it has none.
std::optional<std::string> last_code_block(std::string_view markdown);

}  // namespace headrace
