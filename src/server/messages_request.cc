#include "server/messages_request.h"

#include <array>
#include <string>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/chat_input.h"
#include "server/sampler_names.h"
#include "server/thought_fields.h"
#include "server/tool_choice.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

using Context = FieldContext;

// Of generation_fields().
constexpr auto kMessagesTaken = and_samplers({
    "model",
    "max_tokens",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "repetition_penalty",
    "presence_penalty",
    "frequency_penalty",
    "priority",
    "slo_class",
    "cache_salt",
    "cache_pin",
    "stream",
});

Status bad_turn(std::string message) { return invalid_argument(std::move(message), "messages"); }
Status bad_tool(std::string message) { return invalid_argument(std::move(message), "tools"); }

bool is_type(const Json& block, std::string_view type) {
  const Json* member = block.find("type");
  return member && member->is_string() && member->as_string() == type;
}

// A member that must be there and a text.
Result<std::string> block_text(const Json& block, std::string_view key, const std::string& name) {
  const Json* member = block.find(key);
  const std::string member_name = fmt::format("{}.{}", name, key);
  if (!member) return bad_turn(member_name + " is missing");
  if (!member->is_string())
    return bad_turn(field_error(member_name, "a string", *member).message());
  return member->as_string();
}

// Why a block cannot be where it is.
Status bad_block(const Json& block, const std::string& name,
                 std::span<const std::string_view> known) {
  if (is_type(block, "image") || is_type(block, "document")) {
    return bad_turn(name + ": models see no images and documents here: send text");
  }
  if (is_type(block, "redacted_thinking")) {
    return bad_turn(name + ": redacted_thinking cannot be read here: leave it out");
  }
  const Json* type = block.find("type");
  return bad_turn(choice_error(name + ".type", known, type ? *type : Json()).message());
}

// A text, or blocks of text, joined by line breaks: of `system`, a tool_result, a system turn.
Result<std::string> read_texts(const Json& content, const std::string& name) {
  static constexpr std::array<std::string_view, 1> kKnown = {"text"};
  if (content.is_string()) return content.as_string();
  if (!content.is_array()) {
    return bad_turn(field_error(name, "a string or an array of blocks", content).message());
  }
  std::string text;
  for (size_t i = 0; i < content.as_array().size(); ++i) {
    const Json& block = content.as_array()[i];
    const std::string block_name = fmt::format("{}[{}]", name, i);
    if (!is_type(block, "text")) return bad_block(block, block_name, kKnown);
    HR_ASSIGN_OR_RETURN(const std::string part, block_text(block, "text", block_name));
    if (!text.empty()) text += '\n';
    text += part;
  }
  return text;
}

Status read_tool_result(const Json& block, const std::string& name, ChatTurns& turns) {
  HR_ASSIGN_OR_RETURN(const std::string id, block_text(block, "tool_use_id", name));
  const Json* content = block.find("content");
  std::string text;
  if (content && !content->is_null()) {
    HR_ASSIGN_OR_RETURN(text, read_texts(*content, name + ".content"));
  }
  if (turns.add_tool_answer(id, text)) return ok_status();
  return bad_turn(name + ".tool_use_id is the id of no tool_use before it");
}

Status read_tool_use(const Json& block, const std::string& name, ChatTurns& turns) {
  HR_ASSIGN_OR_RETURN(std::string id, block_text(block, "id", name));
  HR_ASSIGN_OR_RETURN(std::string function, block_text(block, "name", name));
  const Json* input = block.find("input");
  if (!input || !input->is_object()) return bad_turn(name + ".input must be an object");
  turns.add_call(std::move(id), std::move(function), *input);
  return ok_status();
}

Status read_user_block(const Json& block, const std::string& name, ChatTurns& turns) {
  static constexpr std::array<std::string_view, 2> kKnown = {"text", "tool_result"};
  if (is_type(block, "tool_result")) return read_tool_result(block, name, turns);
  if (!is_type(block, "text")) return bad_block(block, name, kKnown);
  HR_ASSIGN_OR_RETURN(const std::string text, block_text(block, "text", name));
  turns.add_text("user", text);
  return ok_status();
}

Status read_assistant_block(const Json& block, const std::string& name, ChatTurns& turns) {
  static constexpr std::array<std::string_view, 3> kKnown = {"text", "thinking", "tool_use"};
  if (is_type(block, "tool_use")) return read_tool_use(block, name, turns);
  if (is_type(block, "thinking")) {
    HR_ASSIGN_OR_RETURN(const std::string thought, block_text(block, "thinking", name));
    turns.add_thought(thought);
    return ok_status();
  }
  if (!is_type(block, "text")) return bad_block(block, name, kKnown);
  HR_ASSIGN_OR_RETURN(const std::string text, block_text(block, "text", name));
  turns.add_text("assistant", text);
  return ok_status();
}

Status read_turn(const Json& message, const std::string& name, ChatTurns& turns) {
  static constexpr std::array<std::string_view, 3> kRoles = {"user", "assistant", "system"};
  const Json* role = message.find("role");
  if (!role || std::find(kRoles.begin(), kRoles.end(),
                         role->is_string() ? role->as_string() : "") == kRoles.end()) {
    return bad_turn(choice_error(name + ".role", kRoles, role ? *role : Json()).message());
  }
  const Json* content = message.find("content");
  if (!content) return bad_turn(name + ".content is missing");
  const std::string content_name = name + ".content";
  if (content->is_string() || !content->is_array() || *role == Json("system")) {
    HR_ASSIGN_OR_RETURN(const std::string text, read_texts(*content, content_name));
    turns.add_text(role->as_string(), text);
    return ok_status();
  }
  const auto read = *role == Json("user") ? read_user_block : read_assistant_block;
  for (size_t i = 0; i < content->as_array().size(); ++i) {
    HR_RETURN_IF_ERROR(read(content->as_array()[i], fmt::format("{}[{}]", content_name, i), turns));
  }
  return ok_status();
}

Status read_turns(const Json& messages, const Context& context, MessagesRequest& request) {
  const auto count_max = static_cast<size_t>(context.limits.messages_max);
  if (!messages.is_array() || messages.as_array().empty() ||
      messages.as_array().size() > count_max) {
    return field_error("messages", fmt::format("an array of 1 to {} messages", count_max),
                       messages);
  }
  for (size_t i = 0; i < messages.as_array().size(); ++i) {
    HR_RETURN_IF_ERROR(
        read_turn(messages.as_array()[i], fmt::format("messages[{}]", i), request.turns));
  }
  return ok_status();
}

Status read_system(const Json& system, const Context&, MessagesRequest& request) {
  const Result<std::string> text = read_texts(system, "system");
  if (!text.ok()) return in_field("system", text.status());
  if (!text->empty()) request.turns.add_text("system", *text);
  return ok_status();
}

// A tool of the client's own as chat templates know it.
Result<Json> read_tool(const Json& tool, const std::string& name) {
  static constexpr std::array<std::string_view, 1> kTypes = {"custom"};
  const Json* type = tool.find("type");
  if (type && !type->is_null() && !is_type(tool, "custom")) {
    return bad_tool(choice_error(name + ".type", kTypes, *type).message() +
                    ": tools of Anthropic's own are not here");
  }
  const auto asks = [&](std::string_view key, const Json& nothing) {
    const Json* value = tool.find(key);
    return value && !value->is_null() && *value != nothing;
  };
  if (asks("defer_loading", Json(false))) {
    return bad_tool(name + ".defer_loading is not supported: leave it out");
  }
  const Json* tool_name = tool.find("name");
  if (!tool_name || !tool_name->is_string() || tool_name->as_string().empty()) {
    return bad_tool(name + ".name must be a string that is not empty");
  }
  const Json* schema = tool.find("input_schema");
  if (!schema || !schema->is_object()) return bad_tool(name + ".input_schema must be an object");
  Json function = Json::object().set("name", *tool_name);
  if (const Json* description = tool.find("description"); description && !description->is_null()) {
    if (!description->is_string()) return bad_tool(name + ".description must be a string");
    function.set("description", *description);
  }
  function.set("parameters", *schema);
  if (asks("strict", Json(false))) function.set("strict", true);
  return Json::object().set("type", "function").set("function", std::move(function));
}

Status read_tools(const Json& tools, const Context& context, MessagesRequest& request) {
  if (!tools.is_array()) return field_error("tools", "an array of tools", tools);
  Json::Array functions;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    HR_ASSIGN_OR_RETURN(Json function, read_tool(tools.as_array()[i], fmt::format("tools[{}]", i)));
    functions.push_back(std::move(function));
  }
  return add_template_variable<ChatRequest, add_tools>(Json(std::move(functions)), context,
                                                       request.chat);
}

Status read_tool_choice(const Json& choice, const Context&, MessagesRequest& request) {
  static constexpr std::array<std::string_view, 4> kTypes = {"auto", "none", "any", "tool"};
  const bool known = std::any_of(kTypes.begin(), kTypes.end(),
                                 [&](std::string_view type) { return is_type(choice, type); });
  if (!known) {
    const Json* type = choice.find("type");
    return in_field("tool_choice", choice_error("tool_choice.type", kTypes, type ? *type : Json()));
  }
  const Json* single = choice.find("disable_parallel_tool_use");
  if (!single || single->is_null()) return ok_status();
  if (!single->is_bool()) {
    return in_field("tool_choice",
                    field_error("tool_choice.disable_parallel_tool_use", "true or false", *single));
  }
  request.chat.parallel_tool_calls = !single->as_bool();
  return ok_status();
}

// budget_tokens bounds the thoughts where they can be: a client that thinks always sends one, and
// elsewhere max_tokens bounds thoughts and answer together.
Status read_thinking(const Json& thinking, const Context& context, MessagesRequest& request) {
  static constexpr std::array<std::string_view, 3> kTypes = {"enabled", "disabled", "adaptive"};
  static constexpr std::array<std::string_view, 2> kDisplays = {"summarized", "omitted"};
  const Json* type = thinking.find("type");
  if (!is_type(thinking, "enabled") && !is_type(thinking, "disabled") &&
      !is_type(thinking, "adaptive")) {
    return in_field("thinking", choice_error("thinking.type", kTypes, type ? *type : Json()));
  }
  if (const Json* budget = thinking.find("budget_tokens"); budget && !budget->is_null()) {
    constexpr FieldRange kBudget{1, 2147483647};
    HR_RETURN_IF_ERROR(in_field(
        "thinking",
        check_field("thinking.budget_tokens", FieldType::kInteger, kBudget, *budget, context)));
    if (context.bounds_thoughts && is_type(thinking, "enabled")) {
      HR_RETURN_IF_ERROR(
          read_thought_tokens("thinking.budget_tokens", *budget, context, request.chat));
    }
  }
  const Json* display = thinking.find("display");
  const bool displayed = !display || display->is_null() || *display == Json("summarized");
  if (!displayed && *display != Json("omitted")) {
    return in_field("thinking", choice_error("thinking.display", kDisplays, *display));
  }
  request.thinking = !is_type(thinking, "disabled");
  if (!displayed || !*request.thinking) request.chat.reasoning = ReasoningForm::kHidden;
  return ok_status();
}

Status read_output_config(const Json& config, const Context& context, MessagesRequest& request) {
  static constexpr std::array<std::string_view, 5> kEfforts = {"low", "medium", "high", "xhigh",
                                                               "max"};
  if (!config.is_object()) return field_error("output_config", "an object", config);
  if (const Json* format = config.find("format"); format && !format->is_null()) {
    HR_RETURN_IF_ERROR(
        read_response_format("output_config.format", *format, context, request.chat.settings));
  }
  const Json* effort = config.find("effort");
  if (!effort || effort->is_null()) return ok_status();
  if (!effort->is_string() ||
      std::find(kEfforts.begin(), kEfforts.end(), effort->as_string()) == kEfforts.end()) {
    return in_field("output_config", choice_error("output_config.effort", kEfforts, *effort));
  }
  request.chat.reasoning_effort = effort->as_string();
  return ok_status();
}

Status read_metadata(const Json& metadata, const Context& context, MessagesRequest& request) {
  if (!metadata.is_object()) return field_error("metadata", "an object", metadata);
  const Json* user = metadata.find("user_id");
  if (!user || user->is_null()) return ok_status();
  HR_RETURN_IF_ERROR(in_field(
      "metadata", check_field("metadata.user_id", FieldType::kString, {}, *user, context)));
  request.chat.settings.tenant = user->as_string();
  return ok_status();
}

// There is one tier of live requests.
Status read_messages_tier(const Json& tier, const Context&, MessagesRequest&) {
  static constexpr std::array<std::string_view, 2> kTiers = {"auto", "standard_only"};
  const bool known = std::find(kTiers.begin(), kTiers.end(), tier.as_string()) != kTiers.end();
  return known ? ok_status() : choice_error("service_tier", kTiers, tier);
}

// `system` before `messages`: it is the first turn.
constexpr Field<MessagesRequest> kMessagesFields[] = {
    {"system", FieldType::kAny, {}, read_system},
    {"messages", FieldType::kAny, {}, read_turns},
    {"stop_sequences",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, MessagesRequest& r) {
       return read_stop_strings("stop_sequences", v, c, r.chat.settings);
     }},
    {"tools", FieldType::kAny, {}, read_tools},
    {"tool_choice", FieldType::kAny, {}, read_tool_choice},
    {"thinking", FieldType::kAny, {}, read_thinking},
    {"output_config", FieldType::kAny, {}, read_output_config},
    {"output_format",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, MessagesRequest& r) {
       return read_response_format("output_format", v, c, r.chat.settings);
     }},
    {"metadata", FieldType::kAny, {}, read_metadata},
    {"service_tier", FieldType::kString, {}, read_messages_tier},
    {"chat_template_kwargs",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, MessagesRequest& r) {
       return add_template_variable<ChatRequest, add_template_kwargs>(v, c, r.chat);
     }},
};

constexpr auto kMessagesOwn = names_of(kMessagesFields);

bool if_given(const Json&) { return true; }
bool if_some(const Json& v) { return !v.is_array() || !v.as_array().empty(); }
bool if_not_standard(const Json& v) { return v != Json("standard"); }
// Templates leave out earlier thoughts where their models want that; nothing else is edited.
bool if_edits(const Json& v) {
  const Json* edits = v.find("edits");
  if (!edits) return !v.is_object();
  if (!edits->is_array()) return true;
  return std::any_of(edits->as_array().begin(), edits->as_array().end(), [](const Json& edit) {
    const Json* type = edit.find("type");
    return !type || !type->is_string() || !type->as_string().starts_with("clear_thinking_");
  });
}

constexpr RefusedField kMessagesRefused[] = {
    {"container", if_given, "code is not run here"},
    {"mcp_servers", if_some, "call them yourself and send their tools"},
    {"context_management", if_edits, "send the messages that the model shall see"},
    {"thread", if_given, "send all messages"},
    {"compaction", if_given, "send the messages that the model shall see"},
    {"inference_geo", if_given, "the server is where it is"},
    {"speed", if_not_standard, "only \"standard\" is"},
};

// What read_tool_choice() has checked.
ToolChoice tool_choice_of(const Json& body) {
  using Kind = ToolChoice::Kind;
  const Json* choice = body.find("tool_choice");
  if (!choice || choice->is_null()) return {};
  if (is_type(*choice, "none")) return {Kind::kNone, {}};
  if (is_type(*choice, "any")) return {Kind::kRequired, {}};
  if (!is_type(*choice, "tool")) return {Kind::kAuto, {}};
  const Json* name = choice->find("name");
  return {Kind::kNamed, name && name->is_string() ? name->as_string() : std::string()};
}

Result<MessagesRequest> parse_messages_body(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_refused(kMessagesRefused, body));
  HR_RETURN_IF_ERROR(check_other_chat_fields(body, kMessagesOwn));
  MessagesRequest request;
  GenerationSettings& settings = request.chat.settings;
  context.defaults.apply_to(settings.sampling);
  HR_RETURN_IF_ERROR(read_some_fields<GenerationSettings>(generation_fields(), kMessagesTaken, body,
                                                          context, settings, kMessagesOwn));
  HR_RETURN_IF_ERROR(read_fields<MessagesRequest>(kMessagesFields, body, context, request));
  HR_RETURN_IF_ERROR(choose_calls(tool_choice_of(body), context, request.chat));
  const Json* messages = body.find("messages");
  if (!messages || messages->is_null()) return invalid_argument("messages is missing", "messages");
  if (request.turns.empty()) return bad_turn("messages must hold a block at least");
  return request;
}

// A last turn of the assistant is the begin of the answer, which goes on from there.
Result<MessagesRequest> take_turns(MessagesRequest request) {
  const bool begun = request.turns.ends_with_assistant();
  request.chat.messages = request.turns.take_messages();
  if (!begun) return request;
  const Json& last = request.chat.messages.as_array().back();
  if (last.find("tool_calls")) {
    return bad_turn("messages must not end with a tool_use: send its tool_result behind it");
  }
  const std::string& text = last.find("content")->as_string();
  if (text.empty() || text.find_last_not_of(" \n\r\t") + 1 != text.size()) {
    return bad_turn(
        "messages must not end with white space or an empty text of the assistant: the answer goes "
        "on behind it");
  }
  request.chat.continue_final_message = true;
  return request;
}

}  // namespace

std::span<const Field<MessagesRequest>> messages_fields() { return kMessagesFields; }

Result<MessagesRequest> parse_messages_request(const Json& body, const FieldContext& context) {
  HR_ASSIGN_OR_RETURN(MessagesRequest request, parse_messages_body(body, context));
  const std::optional<int32_t> max_tokens = request.chat.settings.max_tokens;
  if (!max_tokens) return invalid_argument("max_tokens is missing", "max_tokens");
  if (*max_tokens == 0) return field_error("max_tokens", "at least 1", Json(0));
  return take_turns(std::move(request));
}

Result<MessagesRequest> parse_count_tokens_request(const Json& body, const FieldContext& context) {
  HR_ASSIGN_OR_RETURN(MessagesRequest request, parse_messages_body(body, context));
  return take_turns(std::move(request));
}

}  // namespace headrace
