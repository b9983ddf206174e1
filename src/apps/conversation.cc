#include "apps/conversation.h"

#include <algorithm>
#include <utility>

#include "terminal/block_start.h"

namespace headrace {
namespace {

Json conversation_message(std::string_view role, std::string_view content) {
  return Json::object().set("role", role).set("content", content);
}

bool is_message(const Json& value) {
  const Json *role = value.find("role"), *content = value.find("content");
  return role != nullptr && role->is_string() && content != nullptr && content->is_string();
}

bool has_role(const Json& message, std::string_view role) {
  return message.find("role")->as_string() == role;
}

}  // namespace

Result<Conversation> Conversation::parse(std::string_view text) {
  HR_ASSIGN_OR_RETURN(Json json, parse_json(text));
  if (!json.is_array()) return invalid_argument("expected an array of messages");
  Conversation conversation;
  for (const Json& message : json.as_array()) {
    if (!is_message(message)) {
      return invalid_argument("each message must have a role and a content, both texts");
    }
  }
  Json::Array& messages = json.as_array();
  if (!messages.empty() && has_role(messages.front(), "system")) {
    conversation.system_ = messages.front().find("content")->as_string();
    messages.erase(messages.begin());
  }
  conversation.messages_ = std::move(json);
  return conversation;
}

std::string Conversation::to_text() const { return write_json(all_messages()) + "\n"; }

Json Conversation::all_messages() const {
  if (system_.empty()) return messages_;
  Json all = Json::array();
  all.push(conversation_message("system", system_));
  for (const Json& message : messages_.as_array()) all.push(message);
  return all;
}

void Conversation::add_user(std::string_view text) {
  messages_.push(conversation_message("user", text));
}

void Conversation::add_answer(std::string_view text) {
  messages_.push(conversation_message("assistant", text));
}

bool Conversation::rewind_to_user() {
  if (!last_of("user")) return false;
  Json::Array& messages = messages_.as_array();
  while (!has_role(messages.back(), "user")) messages.pop_back();
  return true;
}

void Conversation::take_back() { messages_.as_array().pop_back(); }

int Conversation::turns() const {
  const Json::Array& messages = messages_.as_array();
  if (messages.empty()) return 0;
  return 1 +
         static_cast<int>(std::count_if(messages.begin() + 1, messages.end(),
                                        [](const Json& each) { return has_role(each, "user"); }));
}

Conversation Conversation::without_oldest(int count) const {
  Conversation rest;
  rest.system_ = system_;
  int turn = 0;
  bool first = true;
  for (const Json& message : messages_.as_array()) {
    if (!std::exchange(first, false) && has_role(message, "user")) ++turn;
    if (turn >= count) rest.messages_.push(message);
  }
  return rest;
}

std::optional<std::string> Conversation::last_of(std::string_view role) const {
  const Json::Array& messages = messages_.as_array();
  const auto found = std::find_if(messages.rbegin(), messages.rend(),
                                  [role](const Json& each) { return has_role(each, role); });
  if (found == messages.rend()) return std::nullopt;
  return found->find("content")->as_string();
}

std::optional<std::string> last_code_block(std::string_view markdown) {
  std::optional<std::string> last;
  std::optional<BlockStart> fence;
  std::string code;
  while (!markdown.empty()) {
    const size_t end = std::min(markdown.find('\n'), markdown.size());
    const std::string_view line = markdown.substr(0, end);
    markdown.remove_prefix(std::min(end + 1, markdown.size()));
    if (!fence) {
      const BlockStart start = block_start(line, true);
      if (start.kind == BlockStart::Kind::kFence) fence = start;
      code.clear();
    } else if (may_close_fence(*fence, line, true)) {
      last = code;
      fence.reset();
    } else {
      code.append(line).append("\n");
    }
  }
  return fence && !code.empty() ? code : last;
}

}  // namespace headrace
