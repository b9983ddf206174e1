#include "server/chat_input.h"

#include <algorithm>
#include <iterator>
#include <string>

#include <fmt/core.h>

namespace headrace {
namespace {

// OpenAI's, and what templates call a tool's answer: Llama's ipython, GLM's observation, OLMo's
// environment. A template writes any other into the prompt as if the model knew it.
constexpr std::string_view kRoles[] = {"system",   "developer", "user",        "assistant",  "tool",
                                       "function", "ipython",   "observation", "environment"};

Status bad_message(std::string message) { return invalid_argument(std::move(message), "messages"); }

// Text of a message's content: a string, null (an assistant turn of tool calls), or text parts.
Result<Json> read_content(const Json& content, size_t message) {
  const std::string name = fmt::format("messages[{}].content", message);
  if (content.is_string() || content.is_null()) return content;
  if (!content.is_array()) {
    return bad_message(field_error(name, "a string or an array of text parts", content).message());
  }
  std::string text;
  for (const Json& part : content.as_array()) {
    const Json* type = part.find("type");
    const Json* part_text = part.find("text");
    if (part.is_string()) part_text = &part;
    const bool is_text =
        part.is_string() || (type && (*type == Json("text") || *type == Json("input_text")));
    if (is_text && (!part_text || !part_text->is_string())) {
      return bad_message(name + " has a part of type \"text\" whose text is no string");
    }
    if (!is_text)
      return bad_message(name +
                         " may hold parts {\"type\": \"text\", \"text\": ...} only: models "
                         "see no images and hear no sound here");
    if (!text.empty()) text += '\n';
    text += part_text->as_string();
  }
  return Json(std::move(text));
}

// Clients send a call's arguments as JSON in a string; templates walk or print an object.
Result<Json> read_arguments(const Json& arguments, const std::string& name, JsonLimits& left) {
  if (!arguments.is_string()) return arguments;
  if (arguments.as_string().empty()) return Json::object();
  Result<Json> parsed = parse_json_within(arguments.as_string(), left);
  if (parsed.status().code() == StatusCode::kExhausted) {
    return bad_message(name + ".function.arguments: " + parsed.status().message());
  }
  if (parsed.ok() && parsed->is_object()) return parsed;
  return bad_message(name + ".function.arguments must be a JSON object in a string");
}

Result<Json> read_tool_calls(const Json& calls, size_t message, JsonLimits& left) {
  if (calls.is_null()) return calls;
  const std::string name = fmt::format("messages[{}].tool_calls", message);
  if (!calls.is_array()) return bad_message(name + " must be an array");
  Json result = calls;
  for (size_t i = 0; i < result.as_array().size(); ++i) {
    Json& call = result.as_array()[i];
    const std::string call_name = fmt::format("{}[{}]", name, i);
    const Json* function = call.find("function");
    const Json* function_name = function ? function->find("name") : nullptr;
    if (!function_name || !function_name->is_string()) {
      return bad_message(call_name + ".function.name must be a string");
    }
    const Json* arguments = function->find("arguments");
    if (!arguments) continue;
    HR_ASSIGN_OR_RETURN(Json value, read_arguments(*arguments, call_name, left));
    call.set("function", Json(*function).set("arguments", std::move(value)));
  }
  return result;
}

// Servers call the thoughts of an earlier turn by two names, and so do templates.
void copy_reasoning(Json& message) {
  const auto copy = [&](std::string_view from, std::string_view to) {
    const Json* text = message.find(from);
    if (text && text->is_string() && !message.find(to)) message.set(to, Json(*text));
  };
  copy("reasoning", "reasoning_content");
  copy("reasoning_content", "reasoning");
}

Status check_objects(std::string_view name, const Json& list) {
  if (!list.is_array()) return field_error(name, "an array of objects", list);
  for (const Json& item : list.as_array()) {
    if (!item.is_object()) return field_error(name, "an array of objects", list);
  }
  return ok_status();
}

}  // namespace

Result<Json> parse_messages(const Json& messages, const FieldContext& context) {
  if (!messages.is_array() || messages.as_array().empty()) {
    return field_error("messages", "an array of at least one message", messages);
  }
  if (messages.as_array().size() > static_cast<size_t>(context.limits.messages_max)) {
    return bad_message(fmt::format("messages must have at most {} entries, got {}",
                                   context.limits.messages_max, messages.as_array().size()));
  }
  Json result = messages;
  JsonLimits arguments_left = context.limits.json;  // of the arguments of all calls together
  for (size_t i = 0; i < result.as_array().size(); ++i) {
    Json& message = result.as_array()[i];
    const Json* role = message.find("role");
    const std::string role_name = fmt::format("messages[{}].role", i);
    if (!role || !role->is_string()) return bad_message(role_name + " must be a string");
    if (std::find(std::begin(kRoles), std::end(kRoles), role->as_string()) == std::end(kRoles)) {
      return bad_message(choice_error(role_name, kRoles, *role).message());
    }
    const Json* calls = message.find("tool_calls");
    const bool has_calls = calls && !calls->is_null() && *calls != Json::array();
    if (has_calls) {
      HR_ASSIGN_OR_RETURN(Json parsed, read_tool_calls(*calls, i, arguments_left));
      message.set("tool_calls", std::move(parsed));
    }
    copy_reasoning(message);
    if (const Json* content = message.find("content")) {
      HR_ASSIGN_OR_RETURN(Json text, read_content(*content, i));
      // Clients send back what an answer without words was; templates read null beside calls alone.
      message.set("content", text.is_null() && !has_calls ? Json("") : std::move(text));
    } else if (has_calls) {
      message.set("content", Json());
    } else if (*role == Json("assistant")) {
      message.set("content", "");
    } else {
      return bad_message(fmt::format("messages[{}].content is missing", i));
    }
  }
  return result;
}

Status check_continued(const Json& body) {
  const auto is_true = [&](std::string_view name) {
    const Json* value = body.find(name);
    return value && *value == Json(true);
  };
  if (!is_true("continue_final_message") || !is_true("add_generation_prompt")) return ok_status();
  return invalid_argument(
      "continue_final_message does not go with add_generation_prompt true: send one of them",
      "continue_final_message");
}

namespace {

// Arguments of a call are an object, here as in OpenAI's API: with a schema of anything else, a
// call that was forced would not be taken back in the next turn.
Status check_parameters(const Json& function, size_t index) {
  const Json* parameters = function.find("parameters");
  const Json* type = parameters ? parameters->find("type") : nullptr;
  if (!type || !type->is_string() || *type == Json("object")) return ok_status();
  return in_field("tools", field_error(fmt::format("tools[{}].function.parameters.type", index),
                                       "\"object\"", *type));
}

}  // namespace

Status add_tools(const Json& tools, const FieldContext&, Json& variables) {
  HR_RETURN_IF_ERROR(check_objects("tools", tools));
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    const Json& tool = tools.as_array()[i];
    const Json* type = tool.find("type");
    const Json* function = tool.find("function");
    const Json* name = function ? function->find("name") : nullptr;
    if (!type || *type != Json("function") || !name || !name->is_string()) {
      return invalid_argument("tools must hold functions: {type: \"function\", function: {name}}",
                              "tools");
    }
    HR_RETURN_IF_ERROR(check_parameters(*function, i));
  }
  if (!tools.as_array().empty()) variables.set("tools", tools);
  return ok_status();
}

Status add_documents(const Json& documents, const FieldContext&, Json& variables) {
  HR_RETURN_IF_ERROR(check_objects("documents", documents));
  if (!documents.as_array().empty()) variables.set("documents", documents);
  return ok_status();
}

Status check_template_kwargs(const Json& kwargs, const RequestLimits& limits) {
  constexpr std::string_view kName = "chat_template_kwargs";
  const auto count_max = static_cast<size_t>(limits.template_kwargs_max);
  if (!kwargs.is_object() || kwargs.as_object().size() > count_max) {
    return field_error(kName, fmt::format("an object of at most {} members", count_max), kwargs);
  }
  for (std::string_view reserved : {"messages", "tools", "documents", "add_generation_prompt"}) {
    if (!kwargs.find(reserved)) continue;
    return invalid_argument(fmt::format("{} must not hold {}", kName, reserved),
                            std::string(kName));
  }
  return ok_status();
}

Status add_template_kwargs(const Json& kwargs, const FieldContext& context, Json& variables) {
  HR_RETURN_IF_ERROR(check_template_kwargs(kwargs, context.limits));
  variables.merge(kwargs.as_object());
  return ok_status();
}

}  // namespace headrace
