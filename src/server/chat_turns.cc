#include "server/chat_turns.h"

#include <utility>

namespace headrace {
namespace {

void append_line(std::string& text, std::string_view line) {
  if (!text.empty() && !line.empty()) text += '\n';
  text += line;
}

}  // namespace

void ChatTurns::add_text(std::string_view role, std::string_view text) {
  append_line(turn_of(role).content, text);
}

void ChatTurns::add_thought(std::string_view text) {
  append_line(turn_of("assistant").reasoning, text);
}

void ChatTurns::add_call(std::string id, std::string name, Json arguments) {
  Json function = Json::object().set("name", name).set("arguments", std::move(arguments));
  Json call = Json::object().set("id", id).set("type", "function");
  turn_of("assistant").calls.push_back(std::move(call.set("function", std::move(function))));
  call_names_.insert_or_assign(std::move(id), std::move(name));
}

bool ChatTurns::add_tool_answer(std::string_view call_id, std::string_view text) {
  const auto call = call_names_.find(call_id);
  if (call == call_names_.end()) return false;
  Turn turn{.role = "tool"};
  turn.content = text;
  turn.call_id = call_id;
  turn.call_name = call->second;
  turns_.push_back(std::move(turn));
  return true;
}

ChatTurns::Turn& ChatTurns::turn_of(std::string_view role) {
  if (turns_.empty() || turns_.back().role != role) turns_.push_back({.role = std::string(role)});
  return turns_.back();
}

Json ChatTurns::take_messages() {
  Json::Array messages;
  messages.reserve(turns_.size());
  for (Turn& turn : turns_) messages.push_back(message_of(std::move(turn)));
  turns_.clear();
  call_names_.clear();
  return Json(std::move(messages));
}

Json ChatTurns::message_of(Turn turn) {
  const bool only_calls = turn.content.empty() && !turn.calls.empty();
  Json message = Json::object().set("role", std::move(turn.role));
  message.set("content", only_calls ? Json() : Json(std::move(turn.content)));
  if (!turn.reasoning.empty()) {  // by the two names that templates have for it
    message.set("reasoning", turn.reasoning).set("reasoning_content", std::move(turn.reasoning));
  }
  if (!turn.calls.empty()) message.set("tool_calls", std::move(turn.calls));
  if (turn.call_id.empty()) return message;
  return message.set("tool_call_id", std::move(turn.call_id))
      .set("name", std::move(turn.call_name));
}

}  // namespace headrace
