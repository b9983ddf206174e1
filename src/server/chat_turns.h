// A conversation for chat templates, made piece by piece: for protocols that send lists of blocks
// or items where chat completions send messages.
//
// Pieces of one role that follow each other are one turn, as several templates insist; their texts
// are joined by a line break.
#pragma once

#include <functional>
#include <map>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"

namespace headrace {

class ChatTurns {
 public:
  // `role`: one that parse_messages() knows.
  void add_text(std::string_view role, std::string_view text);
  // Of the assistant: a thought, a call of a tool. `arguments` is an object.
  void add_thought(std::string_view text);
  void add_call(std::string id, std::string name, Json arguments);
  // What a tool answered. False, and nothing is added: no call before has that id.
  bool add_tool_answer(std::string_view call_id, std::string_view text);

  bool empty() const { return turns_.empty(); }
  bool ends_with_assistant() const { return !empty() && turns_.back().role == "assistant"; }
  // As parse_messages() gives them. The turns are gone then.
  Json take_messages();

 private:
  struct Turn {
    std::string role;
    std::string content = {}, reasoning = {};
    Json::Array calls = {};
    std::string call_id = {}, call_name = {};  // of role tool
  };
  Turn& turn_of(std::string_view role);
  static Json message_of(Turn turn);

  std::vector<Turn> turns_;
  std::map<std::string, std::string, std::less<>> call_names_;  // by id
};

}  // namespace headrace
