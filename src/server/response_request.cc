#include "server/response_request.h"

#include <algorithm>
#include <array>
#include <cmath>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/chat_input.h"
#include "server/response_input.h"
#include "server/sampler_names.h"
#include "server/thought_fields.h"
#include "server/tool_choice.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

using Context = FieldContext;

// Of generation_fields().
constexpr auto kResponseTaken = and_samplers({
    "model",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "seed",
    "priority",
    "slo_class",
    "user",
    "repetition_penalty",
    "service_tier",
    "cache_salt",
    "cache_pin",
    "stream",
    "presence_penalty",
    "prompt_cache_retention",
    "stream_options",
    "frequency_penalty",
});

bool has_type(const Json& value, std::string_view type) {
  const Json* member = value.find("type");
  return member && *member == Json(type);
}

// Stands in front of `input`.
Status read_instructions(const Json& value, const Context&, ResponseRequest& request) {
  if (!value.is_string()) return field_error("instructions", "a string", value);
  if (!value.as_string().empty()) request.turns.add_text("system", value.as_string());
  return ok_status();
}

Status read_input(const Json& value, const Context& context, ResponseRequest& request) {
  JsonLimits left = context.limits.json;
  for (const Json& items : request.earlier_items) {
    HR_RETURN_IF_ERROR(add_response_items(items, left, request.turns));
  }
  HR_ASSIGN_OR_RETURN(request.input_items,
                      response_items(value, static_cast<size_t>(context.limits.messages_max)));
  return add_response_items(request.input_items, left, request.turns);
}

// A function as chat templates know it.
Result<Json> read_function(const Json& tool, const std::string& name) {
  static constexpr std::array<std::string_view, 1> kTypes = {"function"};
  const auto bad = [](std::string message) {
    return invalid_argument(std::move(message), "tools");
  };
  if (!has_type(tool, "function")) {
    const Json* type = tool.find("type");
    return bad(choice_error(name + ".type", kTypes, type ? *type : Json()).message() +
               ": tools of OpenAI's own are not here");
  }
  const Json* function_name = tool.find("name");
  if (!function_name || !function_name->is_string() || function_name->as_string().empty()) {
    return bad(name + ".name must be a string that is not empty");
  }
  Json function = Json::object();
  for (std::string_view key : {"name", "description", "parameters"}) {
    const Json* value = tool.find(key);
    if (value && !value->is_null()) function.set(key, *value);
  }
  const Json* strict = tool.find("strict");
  if (strict && !strict->is_null() && *strict != Json(false)) function.set("strict", *strict);
  return Json::object().set("type", "function").set("function", std::move(function));
}

Status read_response_tools(const Json& tools, const Context& context, ResponseRequest& request) {
  if (!tools.is_array()) return field_error("tools", "an array of functions", tools);
  Json::Array functions;
  for (size_t i = 0; i < tools.as_array().size(); ++i) {
    HR_ASSIGN_OR_RETURN(Json function,
                        read_function(tools.as_array()[i], fmt::format("tools[{}]", i)));
    functions.push_back(std::move(function));
  }
  return add_template_variable<ChatRequest, add_tools>(Json(std::move(functions)), context,
                                                       request.chat);
}

Status read_reasoning(const Json& reasoning, const Context& context, ResponseRequest& request) {
  static constexpr std::array<std::string_view, 3> kSummaries = {"auto", "concise", "detailed"};
  if (!reasoning.is_object()) return field_error("reasoning", "an object", reasoning);
  const Json* summary = reasoning.find("summary");  // thoughts come whole, in `content`
  if (summary && !summary->is_null() &&
      (!summary->is_string() ||
       std::find(kSummaries.begin(), kSummaries.end(), summary->as_string()) == kSummaries.end())) {
    return in_field("reasoning", choice_error("reasoning.summary", kSummaries, *summary));
  }
  if (const Json* effort = reasoning.find("effort"); effort && !effort->is_null()) {
    HR_RETURN_IF_ERROR(read_effort("reasoning.effort", *effort, request.chat));
  }
  const Json* tokens = reasoning.find("max_tokens");
  if (!tokens || tokens->is_null()) return ok_status();
  return read_thought_tokens("reasoning.max_tokens", *tokens, context, request.chat);
}

Status read_text_config(const Json& text, const Context& context, ResponseRequest& request) {
  if (!text.is_object()) return field_error("text", "an object", text);
  if (const Json* format = text.find("format"); format && !format->is_null()) {
    HR_RETURN_IF_ERROR(
        read_response_format("text.format", *format, context, request.chat.settings));
  }
  const Json* verbosity = text.find("verbosity");
  if (!verbosity || verbosity->is_null() || *verbosity == Json("medium")) return ok_status();
  return invalid_argument("text.verbosity is not supported: ask for it in the prompt", "text");
}

Status read_truncation(const Json& value, const Context&, ResponseRequest&) {
  static constexpr std::array<std::string_view, 2> kTruncations = {"auto", "disabled"};
  const bool known =
      std::find(kTruncations.begin(), kTruncations.end(), value.as_string()) != kTruncations.end();
  return known ? ok_status() : choice_error("truncation", kTruncations, value);
}

Status read_response_metadata(const Json& value, const Context&, ResponseRequest&) {
  return check_metadata(value);
}

// Log-probabilities are told in another way than here; what tools of OpenAI's own give is nowhere.
Status read_include(const Json& value, const Context&, ResponseRequest&) {
  static constexpr std::array<std::string_view, 8> kKnown = {
      "reasoning.encrypted_content",   "file_search_call.results",
      "web_search_call.results",       "web_search_call.action.sources",
      "code_interpreter_call.outputs", "computer_call_output.output.image_url",
      "message.input_image.image_url", "message.output_text.logprobs",
  };
  if (!value.is_array()) return field_error("include", "an array of strings", value);
  for (const Json& each : value.as_array()) {
    if (!each.is_string()) return field_error("include", "an array of strings", value);
    if (!is_named(kKnown, each.as_string())) return choice_error("include", kKnown, each);
    if (each.as_string() != "message.output_text.logprobs") continue;
    return invalid_argument(
        "include \"message.output_text.logprobs\" is not supported: /v1/chat/completions has "
        "log-probabilities",
        "include");
  }
  return ok_status();
}

Status accept_unread(const Json&, const Context&, ResponseRequest&) { return ok_status(); }

// `instructions` before `input`: they are the first turn.
constexpr Field<ResponseRequest> kResponseFields[] = {
    {"instructions", FieldType::kAny, {}, read_instructions},
    {"previous_response_id", FieldType::kString, {}, accept_unread},  // read_previous_id()
    {"input", FieldType::kAny, {}, read_input},
    {"max_output_tokens",
     FieldType::kInteger,
     {1, 2147483647},
     [](const Json& v, const Context&, ResponseRequest& r) {
       return r.chat.settings.max_tokens = static_cast<int32_t>(integer_of(v)), ok_status();
     }},
    {"max_tool_calls",
     FieldType::kInteger,
     {1, 2147483647},
     accept_unread},  // of OpenAI's own tools
    {"metadata", FieldType::kAny, {}, read_response_metadata},
    {"parallel_tool_calls",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ResponseRequest& r) {
       return r.chat.parallel_tool_calls = v.as_bool(), ok_status();
     }},
    {"prompt_cache_key", FieldType::kString, {}, accept_unread},  // the cache finds prompts itself
    {"safety_identifier", FieldType::kString, {}, accept_unread},
    {"reasoning", FieldType::kAny, {}, read_reasoning},
    {"store",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ResponseRequest& r) {
       return r.store = v.as_bool(), ok_status();
     }},
    {"background",
     FieldType::kBool,
     {},
     [](const Json& v, const Context&, ResponseRequest& r) {
       return r.background = v.as_bool(), ok_status();
     }},
    {"text", FieldType::kAny, {}, read_text_config},
    {"tools", FieldType::kAny, {}, read_response_tools},
    {"truncation", FieldType::kString, {}, read_truncation},
    {"include", FieldType::kAny, {}, read_include},
    {"chat_template_kwargs",
     FieldType::kAny,
     {},
     [](const Json& v, const Context& c, ResponseRequest& r) {
       return add_template_variable<ChatRequest, add_template_kwargs>(v, c, r.chat);
     }},
};

bool if_there(const Json&) { return true; }
bool if_above_zero(const Json& v) { return !v.is_number() || v.as_double() > 0; }
bool if_filled(const Json& v) { return !v.is_array() || !v.as_array().empty(); }

constexpr RefusedField kResponseRefused[] = {
    {"conversation", if_there, "send previous_response_id, or the items"},
    {"prompt", if_there, "send its text as instructions and input"},
    {"context_management", if_filled, "send the items that the model shall see"},
    {"moderation", if_there},
    {"top_logprobs", if_above_zero, "/v1/chat/completions has log-probabilities"},
    {"messages", if_there, "send input"},
    {"max_completion_tokens", if_there, "send max_output_tokens"},
};

// It is 0 in the API's own requests, where chats of OpenAI's want `logprobs` beside it.
constexpr auto kResponseOwn = [] {
  std::array<std::string_view, std::size(kResponseFields) + 1> names{};
  const auto own = names_of(kResponseFields);
  std::copy(own.begin(), own.end(), names.begin());
  names.back() = "top_logprobs";
  return names;
}();

// As a person wrote it: 0.7, not the float's 0.699999988.
Json shown_number(float value) { return Json(std::round(value * 1e6) / 1e6); }

// What was asked for, with what stands for what was not said.
Json echo_of(const Json& body, const ResponseRequest& request) {
  const SamplingParams& sampling = request.chat.settings.sampling;
  const Json text = Json::object().set("format", Json::object().set("type", "text"));
  const Json thoughts = Json::object().set("effort", Json()).set("summary", Json());
  const Json::Object members = {
      {"background", Json(false)},
      {"instructions", Json()},
      {"max_output_tokens", Json()},
      {"max_tool_calls", Json()},
      {"metadata", Json::object()},
      {"parallel_tool_calls", Json(true)},
      {"previous_response_id", Json()},
      {"prompt_cache_key", Json()},
      {"reasoning", thoughts},
      {"safety_identifier", Json()},
      {"service_tier", Json("default")},
      {"temperature", shown_number(sampling.temperature)},
      {"text", text},
      {"tool_choice", Json("auto")},
      {"tools", Json::array()},
      {"top_logprobs", Json(0)},
      {"top_p", shown_number(sampling.top_p)},
      {"truncation", Json("disabled")},
      {"user", Json()},
  };
  Json::Object echo;
  echo.reserve(members.size() + 1);
  for (const auto& [name, otherwise] : members) {
    const Json* said = body.find(name);
    echo.emplace_back(name, said && !said->is_null() ? *said : otherwise);
  }
  return Json(std::move(echo));
}

}  // namespace

std::span<const Field<ResponseRequest>> response_fields() { return kResponseFields; }

Result<std::string> read_previous_id(const Json& body, const FieldContext& context) {
  const Json* id = body.find("previous_response_id");
  if (!id || id->is_null()) return std::string();
  HR_RETURN_IF_ERROR(check_field("previous_response_id", FieldType::kString, {}, *id, context));
  if (id->as_string().empty()) return field_error("previous_response_id", "an id", *id);
  return id->as_string();
}

Result<ResponseRequest> parse_response_request(const Json& body, const FieldContext& context,
                                               std::vector<Json> earlier) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_refused(kResponseRefused, body));
  HR_RETURN_IF_ERROR(check_other_chat_fields(body, kResponseOwn));
  ResponseRequest request;
  request.earlier_items = std::move(earlier);
  context.defaults.apply_to(request.chat.settings.sampling);
  HR_RETURN_IF_ERROR(read_some_fields<GenerationSettings>(generation_fields(), kResponseTaken, body,
                                                          context, request.chat.settings));
  // Of stream_options chats have other members: the usage is in the last event anyway.
  request.chat.settings.include_usage = request.chat.settings.continuous_usage = false;
  HR_RETURN_IF_ERROR(read_fields<ResponseRequest>(kResponseFields, body, context, request));
  if (!request.input_items.is_array()) return invalid_argument("input is missing", "input");
  HR_ASSIGN_OR_RETURN(const ToolChoice choice, read_openai_tool_choice(body));
  HR_RETURN_IF_ERROR(choose_calls(choice, context, request.chat));
  request.echo = echo_of(body, request);
  request.chat.messages = request.turns.take_messages();
  request.earlier_items.clear();
  return request;
}

}  // namespace headrace
