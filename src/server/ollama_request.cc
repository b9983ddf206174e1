#include "server/ollama_request.h"

#include <algorithm>
#include <array>
#include <cstdlib>
#include <iterator>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/chat_input.h"
#include "server/field_schemas.h"
#include "server/sampler_names.h"
#include "server/tool_choice.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

constexpr double kCountMax = std::numeric_limits<int32_t>::max();

// Of requests that are silent, where the model's makers are too. (Not its penalty of 1.1 over the
// last 64 tokens: penalties look at all of them here.)
constexpr SamplingDefaults kOllamaSampling = {.temperature = 0.8f, .top_p = 0.9f, .top_k = 40};

// Options that are fields of the OpenAI API by the same name and with the same ranges.
constexpr auto kSharedOptions = and_samplers({
    "temperature",
    "top_k",
    "top_p",
    "min_p",
    "repeat_penalty",
    "repeat_last_n",
    "presence_penalty",
    "frequency_penalty",
    "seed",
    "stop",
});

Status read_num_predict(const Json& value, const FieldContext&, OllamaRequest& request) {
  GenerationSettings& settings = request.chat.settings;
  settings.to_context_end = integer_of(value) < 0;
  settings.max_tokens.reset();
  if (!settings.to_context_end) settings.max_tokens = static_cast<int32_t>(integer_of(value));
  return ok_status();
}

// Those that Ollama has alone.
constexpr Field<OllamaRequest> kOllamaOptions[] = {
    {"num_predict", FieldType::kInteger, {-2, kCountMax}, read_num_predict},
    {"num_ctx",
     FieldType::kInteger,
     {1, kCountMax},
     // As much as the server was started with, whatever is asked for.
     [](const Json&, const FieldContext&, OllamaRequest&) { return ok_status(); }},
};

Status read_inside_options(const Json& options, const FieldContext& context,
                           OllamaRequest& request) {
  HR_RETURN_IF_ERROR(check_refused(refused_generation_fields(), options));
  HR_RETURN_IF_ERROR(check_refused(refused_form_fields(), options));
  HR_RETURN_IF_ERROR(read_fields<OllamaRequest>(kOllamaOptions, options, context, request));
  GenerationSettings& settings = request.chat.settings;
  HR_RETURN_IF_ERROR(read_named_fields<GenerationSettings>(generation_fields(), kSharedOptions,
                                                           options, context, settings));
  ignore_empty_penalty_window(settings);
  return check_settings(settings, context, "top_logprobs");
}

Status read_options(const Json& value, const FieldContext& context, OllamaRequest& request) {
  if (!value.is_object()) return field_error("options", "an object", value);
  const Status status = read_inside_options(value, context, request);
  if (status.ok()) return status;
  return invalid_argument("options." + status.message(), "options." + std::string(status.field()));
}

// Of a Go duration ("5m", "1h30m", "-1s"), or a number in a string.
std::optional<double> duration_seconds(std::string_view text) {
  struct Unit {
    std::string_view name;
    double seconds;
  };
  static constexpr Unit kUnits[] = {{"ns", 1e-9}, {"us", 1e-6}, {"\xC2\xB5s", 1e-6}, {"ms", 1e-3},
                                    {"s", 1},     {"m", 60},    {"h", 3600}};
  constexpr size_t kBytesMax = 64;
  if (text.size() > kBytesMax) return std::nullopt;
  const double sign = text.starts_with('-') ? -1 : 1;
  if (text.starts_with('-') || text.starts_with('+')) text.remove_prefix(1);
  if (text.empty()) return std::nullopt;
  if (text.find_first_not_of("0123456789") == text.npos) {
    return sign * std::strtod(std::string(text).c_str(), nullptr);
  }
  double seconds = 0;
  while (!text.empty()) {
    const size_t digits = std::min(text.find_first_not_of("0123456789."), text.size());
    if (digits == 0) return std::nullopt;
    const double count = std::strtod(std::string(text.substr(0, digits)).c_str(), nullptr);
    text.remove_prefix(digits);
    const auto unit = std::find_if(std::begin(kUnits), std::end(kUnits),
                                   [&](const Unit& each) { return text.starts_with(each.name); });
    if (unit == std::end(kUnits)) return std::nullopt;
    seconds += count * unit->seconds;
    text.remove_prefix(unit->name.size());
  }
  return sign * seconds;
}

// Only checked here: the handlers follow it (follow_keep_alive).
Status read_keep_alive(const Json& value, const FieldContext&, OllamaRequest&) {
  if (keep_alive_seconds(value)) return ok_status();
  return field_error("keep_alive", "a number of seconds or a duration as \"5m\"", value);
}

// Templates have two names of the switch; one that has neither does not see it.
Status read_think(const Json& value, const FieldContext& context, OllamaRequest& request) {
  static constexpr std::array<std::string_view, 3> kLevels = {"low", "medium", "high"};
  const bool level = value.is_string() &&
                     std::find(kLevels.begin(), kLevels.end(), value.as_string()) != kLevels.end();
  if (!level && !value.is_bool()) {
    return field_error("think", "true, false, \"low\", \"medium\" or \"high\"", value);
  }
  const bool on = level || value.as_bool();
  if (on && !context.reads_reasoning) {
    return invalid_argument(
        "think is not supported by this model: how it writes its thoughts is not known from its "
        "chat template, and no --reasoning-parser says it",
        "think");
  }
  if (level) request.think_level = value.as_string();
  if (!on) request.chat.reasoning = ReasoningForm::kHidden;
  Json& variables = request.chat.template_variables;
  if (variables.is_null()) variables = Json::object();
  variables.set("enable_thinking", on).set("thinking", on);
  if (level) variables.set("reasoning_effort", request.think_level);
  return ok_status();
}

Status refuse_images(const std::string& name, const Json* images) {
  if (!images || images->is_null() || (images->is_array() && images->as_array().empty())) {
    return ok_status();
  }
  return invalid_argument(name + " is not supported: models see no images here", "images");
}

// A message in the OpenAI API's words: thoughts, the name of a tool, the type of a call.
Status translate_message(Json& message, size_t index) {
  if (!message.is_object()) return ok_status();  // parse_messages() says what it should be
  HR_RETURN_IF_ERROR(
      refuse_images(fmt::format("messages[{}].images", index), message.find("images")));
  const auto copy = [&](std::string_view from, std::string_view to) {
    const Json* value = message.find(from);
    if (value && value->is_string() && !message.find(to)) message.set(to, Json(*value));
  };
  copy("thinking", "reasoning");
  copy("tool_name", "name");
  const Json* calls = message.find("tool_calls");
  if (!calls || calls->is_null()) {
    if (!message.find("content")) message.set("content", "");
    return ok_status();
  }
  if (!calls->is_array()) return ok_status();
  Json typed = *calls;
  for (Json& call : typed.as_array()) {
    if (call.is_object() && !call.find("type")) call.set("type", "function");
  }
  message.set("tool_calls", std::move(typed));
  return ok_status();
}

Status read_ollama_messages(const Json& value, const FieldContext& context,
                            OllamaRequest& request) {
  Json messages = value;
  if (messages.is_array()) {
    if (messages.as_array().empty()) return ok_status();
    for (size_t i = 0; i < messages.as_array().size(); ++i) {
      HR_RETURN_IF_ERROR(translate_message(messages.as_array()[i], i));
    }
  }
  HR_ASSIGN_OR_RETURN(request.chat.messages, parse_messages(messages, context));
  return ok_status();
}

Status read_ollama_tools(const Json& value, const FieldContext& context, OllamaRequest& request) {
  HR_RETURN_IF_ERROR((add_template_variable<ChatRequest, add_tools>(value, context, request.chat)));
  if (!request.chat.template_variables.find("tools")) return ok_status();
  request.chat.reads_calls = context.reads_calls;
  if (context.reads_calls) return ok_status();
  return invalid_argument(
      "tools are not supported by this model: its chat template shows no form of calls that is "
      "known, and no --tool-call-parser names one",
      "tools");
}

template <std::string OllamaRequest::*kMember>
Status read_any_text(std::string_view name, const Json& value, OllamaRequest& request) {
  if (!value.is_string()) return field_error(name, "a string", value);
  request.*kMember = value.as_string();
  return ok_status();
}

// "json" for any object, or a schema.
Status read_format(const Json& value, const FieldContext& context, OllamaRequest& request) {
  GenerationSettings& settings = request.chat.settings;
  if (value == Json("")) return ok_status();
  if (value == Json("json")) return read_any_json_form("format", context, settings);
  if (!value.is_object()) return field_error("format", "\"json\" or a JSON schema", value);
  return read_schema_form("format", value, context, settings);
}

#define HR_STORE(member, expression)                         \
  [](const Json& v, const FieldContext&, OllamaRequest& r) { \
    return r.member = (expression), ok_status();             \
  }

constexpr Field<OllamaRequest> kOllamaFields[] = {
    {"model",
     FieldType::kString,
     {},
     [](const Json& v, const FieldContext& c, OllamaRequest& r) {
       r.chat.settings.shown_model = c.shown_model;
       return r.chat.settings.model = v.as_string(), ok_status();
     }},
    {"stream", FieldType::kBool, {}, HR_STORE(chat.settings.stream, v.as_bool())},
    {"format", FieldType::kAny, {}, read_format},
    {"logprobs",
     FieldType::kBool,
     {},
     HR_STORE(chat.settings.sampling.logprobs, v.as_bool() ? 0 : -1)},
    // As the OpenAI API's: stored behind `logprobs`.
    {"top_logprobs",
     FieldType::kInteger,
     {0, kCountMax},
     [](const Json& v, const FieldContext&, OllamaRequest& r) {
       int32_t& logprobs = r.chat.settings.sampling.logprobs;
       if (logprobs >= 0) logprobs = static_cast<int32_t>(integer_of(v));
       return ok_status();
     }},
    {"keep_alive", FieldType::kAny, {}, read_keep_alive},
    {"think", FieldType::kAny, {}, read_think},
    {"options", FieldType::kAny, {}, read_options, kObjectSchema},
};

constexpr Field<OllamaRequest> kOllamaChatFields[] = {
    {"messages", FieldType::kAny, {}, read_ollama_messages},
    {"tools", FieldType::kAny, {}, read_ollama_tools},
};

constexpr Field<OllamaRequest> kOllamaGenerateFields[] = {
    {"prompt",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, OllamaRequest& r) {
       return read_any_text<&OllamaRequest::prompt>("prompt", v, r);
     },
     kTextSchema},
    {"system",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, OllamaRequest& r) {
       return read_any_text<&OllamaRequest::system>("system", v, r);
     },
     kTextSchema},
    {"suffix",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, OllamaRequest& r) {
       return read_any_text<&OllamaRequest::suffix>("suffix", v, r);
     },
     kTextSchema},
    {"raw", FieldType::kBool, {}, HR_STORE(raw, v.as_bool())},
};
#undef HR_STORE

bool is_not_empty(const Json& v) {
  return !(v.is_string() && v.as_string().empty()) && !(v.is_array() && v.as_array().empty());
}

constexpr RefusedField kOllamaRefused[] = {
    {"context", is_not_empty, "send the conversation to /api/chat; the prefix cache keeps it"},
    {"images", is_not_empty, "models see no images here"},
};

}  // namespace

std::optional<double> keep_alive_seconds(const Json& value) {
  std::optional<double> seconds;
  if (value.is_number()) seconds = value.as_double();
  if (value.is_string()) seconds = duration_seconds(value.as_string());
  if (seconds && *seconds < 0) seconds = std::numeric_limits<double>::infinity();
  return seconds;
}

std::span<const Field<OllamaRequest>> ollama_fields() { return kOllamaFields; }
std::span<const Field<OllamaRequest>> ollama_fields(OllamaRoute route) {
  if (route == OllamaRoute::kChat) return kOllamaChatFields;
  return kOllamaGenerateFields;
}

Result<OllamaRequest> parse_ollama_request(OllamaRoute route, const Json& body,
                                           const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_refused(kOllamaRefused, body));
  OllamaRequest request;
  GenerationSettings& settings = request.chat.settings;
  settings.stream = true;
  settings.to_context_end = true;
  context.defaults.over(kOllamaSampling).apply_to(settings.sampling);
  settings.sampling.penalty_window = kLlamaPenaltyWindow;
  HR_RETURN_IF_ERROR(read_fields<OllamaRequest>(ollama_fields(), body, context, request));
  HR_RETURN_IF_ERROR(read_fields<OllamaRequest>(ollama_fields(route), body, context, request));
  HR_RETURN_IF_ERROR(check_settings(settings, context, "top_logprobs"));
  HR_RETURN_IF_ERROR(choose_calls({}, context, request.chat));
  request.only_loads =
      route == OllamaRoute::kChat ? request.chat.messages.is_null() : request.prompt.empty();
  return request;
}

}  // namespace headrace
