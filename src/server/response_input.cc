#include "server/response_input.h"

#include <algorithm>
#include <array>

#include <fmt/format.h>

#include "server/random_id.h"
#include "server/request_fields.h"
#include "server/server_state.h"

namespace headrace {
namespace {

Status bad_item(std::string message) { return invalid_argument(std::move(message), "input"); }

// "" where there is none: then an item with a role is a message.
std::string_view type_of(const Json& item) {
  const Json* type = item.find("type");
  if (type && type->is_string()) return type->as_string();
  return !type && item.find("role") ? "message" : "";
}

Result<std::string> item_text(const Json& item, std::string_view key, const std::string& name) {
  const Json* member = item.find(key);
  if (member && member->is_string()) return member->as_string();
  const std::string member_name = fmt::format("{}.{}", name, key);
  if (!member) return bad_item(member_name + " is missing");
  return bad_item(field_error(member_name, "a string", *member).message());
}

// The text of parts, which all kinds of items have under names of their own.
Result<std::string> read_parts(const Json& content, const std::string& name) {
  static constexpr std::array<std::string_view, 6> kTypes = {
      "input_text", "output_text", "text", "reasoning_text", "summary_text", "refusal"};
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) {
    return bad_item(field_error(name, "a string or an array of parts", content).message());
  }
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& part = content.as_array()[i];
    const std::string part_name = fmt::format("{}[{}]", name, i);
    const std::string_view type = type_of(part);
    if (type == "input_image" || type == "input_file" || type == "input_audio") {
      return bad_item(part_name + ": models see no images and files here: send text");
    }
    if (std::find(kTypes.begin(), kTypes.end(), type) == kTypes.end()) {
      const Json* member = part.find("type");
      return bad_item(
          choice_error(part_name + ".type", kTypes, member ? *member : Json()).message());
    }
    HR_ASSIGN_OR_RETURN(const std::string piece,
                        item_text(part, type == "refusal" ? "refusal" : "text", part_name));
    if (!text.empty() && !piece.empty()) text += '\n';
    text += piece;
  }
  return text;
}

Result<std::string> read_member_parts(const Json& item, std::string_view key,
                                      const std::string& name) {
  const Json* content = item.find(key);
  const std::string content_name = fmt::format("{}.{}", name, key);
  if (!content) return bad_item(content_name + " is missing");
  return read_parts(*content, content_name);
}

Status add_message(const Json& item, const std::string& name, ChatTurns& turns) {
  static constexpr std::array<std::string_view, 4> kRoles = {"user", "assistant", "system",
                                                             "developer"};
  const Json* role = item.find("role");
  const bool known = role && role->is_string() &&
                     std::find(kRoles.begin(), kRoles.end(), role->as_string()) != kRoles.end();
  if (!known)
    return bad_item(choice_error(name + ".role", kRoles, role ? *role : Json()).message());
  HR_ASSIGN_OR_RETURN(const std::string text, read_member_parts(item, "content", name));
  turns.add_text(role->as_string(), text);
  return ok_status();
}

Status add_function_call(const Json& item, const std::string& name, JsonLimits& left,
                         ChatTurns& turns) {
  HR_ASSIGN_OR_RETURN(std::string id, item_text(item, "call_id", name));
  HR_ASSIGN_OR_RETURN(std::string function, item_text(item, "name", name));
  HR_ASSIGN_OR_RETURN(const std::string text, item_text(item, "arguments", name));
  Result<Json> arguments = text.empty() ? Json::object() : parse_json_within(text, left);
  if (arguments.status().code() == StatusCode::kExhausted) {
    return bad_item(name + ".arguments: " + arguments.status().message());
  }
  if (!arguments.ok() || !arguments->is_object()) {
    return bad_item(name + ".arguments must be a JSON object in a string");
  }
  turns.add_call(std::move(id), std::move(function), std::move(*arguments));
  return ok_status();
}

Status add_function_output(const Json& item, const std::string& name, ChatTurns& turns) {
  HR_ASSIGN_OR_RETURN(const std::string id, item_text(item, "call_id", name));
  HR_ASSIGN_OR_RETURN(const std::string text, read_member_parts(item, "output", name));
  if (turns.add_tool_answer(id, text)) return ok_status();
  return bad_item(name + ".call_id is that of no function_call before it");
}

// Of what is encrypted nothing can be read; it is no error, as clients send back what they have.
Status add_reasoning(const Json& item, const std::string& name, ChatTurns& turns) {
  for (std::string_view key : {"content", "summary"}) {
    const Json* parts = item.find(key);
    if (!parts || parts->is_null()) continue;
    HR_ASSIGN_OR_RETURN(const std::string text,
                        read_parts(*parts, fmt::format("{}.{}", name, key)));
    if (text.empty()) continue;
    turns.add_thought(text);
    break;
  }
  return ok_status();
}

Status add_response_item(const Json& item, const std::string& name, JsonLimits& left,
                         ChatTurns& turns) {
  static constexpr std::array<std::string_view, 4> kTypes = {"message", "function_call",
                                                             "function_call_output", "reasoning"};
  const std::string_view type = type_of(item);
  if (type == "message") return add_message(item, name, turns);
  if (type == "function_call") return add_function_call(item, name, left, turns);
  if (type == "function_call_output") return add_function_output(item, name, turns);
  if (type == "reasoning") return add_reasoning(item, name, turns);
  const Json* member = item.find("type");
  return bad_item(choice_error(name + ".type", kTypes, member ? *member : Json()).message());
}

Json with_members(const Json& object, std::span<const std::string_view> names) {
  Json kept = Json::object();
  for (const std::string_view name : names) {
    if (const Json* member = object.find(name)) kept.set(name, *member);
  }
  return kept;
}

// Of what a client sends only the members that mean something here: what it is asked for again is
// stored, shown and read for each response that goes on from this one.
Json known_members(const Json& item) {
  static constexpr std::string_view kOfItem[] = {
      "type", "id",        "status", "role",    "content",          "call_id",
      "name", "arguments", "output", "summary", "encrypted_content"};
  static constexpr std::string_view kOfPart[] = {"type", "text", "refusal"};
  Json kept = with_members(item, kOfItem);
  for (const std::string_view name : {"content", "output", "summary"}) {
    const Json* parts = kept.find(name);
    if (!parts || !parts->is_array()) continue;
    Json::Array known;
    known.reserve(parts->as_array().size());
    for (const Json& part : parts->as_array()) {
      known.push_back(part.is_object() ? with_members(part, kOfPart) : part);
    }
    kept.set(name, std::move(known));
  }
  return kept;
}

// As the API shows items again: with an id, a type, and a message's text in parts.
Json shown_item(Json item) {
  const std::string_view type = type_of(item);
  const std::string_view prefix = type == "message"                ? "msg_"
                                  : type == "function_call"        ? "fc_"
                                  : type == "function_call_output" ? "fco_"
                                                                   : "rs_";
  const bool message = type == "message";
  const Json* id = item.find("id");
  const bool named = id && id->is_string();
  if (!named) item.set("id", std::string(prefix) + random_hex_id());
  if (!message) return item;
  item.set("type", "message");
  if (!item.find("status")) item.set("status", "completed");
  const Json* content = item.find("content");
  if (!content || !content->is_string()) return item;
  const Json* role = item.find("role");
  const bool said = role && *role == Json("assistant");
  Json part = Json::object().set("type", said ? "output_text" : "input_text");
  part.set("text", *content);
  if (said) part.set("annotations", Json::array());
  return item.set("content", Json::Array{std::move(part)});
}

}  // namespace

Result<Json> response_items(const Json& input, size_t items_max) {
  if (input.is_string()) {
    Json message = Json::object().set("type", "message").set("role", "user");
    return Json(Json::Array{shown_item(message.set("content", input))});
  }
  const std::string expected = fmt::format("a string or an array of 1 to {} items", items_max);
  if (!input.is_array() || input.as_array().empty() || input.as_array().size() > items_max) {
    return field_error("input", expected, input);
  }
  Json::Array items;
  items.reserve(input.as_array().size());
  for (size_t i = 0; i < input.as_array().size(); ++i) {
    const Json& item = input.as_array()[i];
    if (!item.is_object()) {
      return bad_item(field_error(fmt::format("input[{}]", i), "an object", item).message());
    }
    items.push_back(shown_item(known_members(item)));
  }
  return Json(std::move(items));
}

Status add_response_items(const Json& items, JsonLimits& arguments_left, ChatTurns& turns) {
  for (size_t i = 0; i < items.as_array().size(); ++i) {
    HR_RETURN_IF_ERROR(
        add_response_item(items.as_array()[i], fmt::format("input[{}]", i), arguments_left, turns));
  }
  return ok_status();
}

}  // namespace headrace
