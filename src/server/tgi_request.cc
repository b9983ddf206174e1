#include "server/tgi_request.h"

#include <array>
#include <limits>
#include <utility>

#include "server/answer_form.h"
#include "server/field_schemas.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

constexpr double kTgiIntMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kTgiMaxTokens = 100;

constexpr std::string_view kTgiShared[] = {
    "temperature",       "top_p", "top_k", "typical_p", "repetition_penalty",
    "frequency_penalty", "seed",  "stop",
};

// {"type": "json" | "regex" | "json_schema", "value": ...}, of the last of which the value has a
// name and a schema.
Status read_tgi_grammar(const Json& grammar, const FieldContext& context, TgiRequest& request) {
  static constexpr std::array<std::string_view, 3> kTypes = {"json", "regex", "json_schema"};
  GenerationSettings& settings = request.completion.settings;
  const Json* type = grammar.find("type");
  const Json* value = grammar.find("value");
  if (!type || !value) {
    return field_error("grammar", "an object with a type and a value", grammar);
  }
  if (*type == Json("regex")) return read_regex_form("grammar", *value, context, settings);
  if (*type == Json("json_schema")) value = value->find("schema");
  if (value && (*type == Json("json") || *type == Json("json_schema"))) {
    return read_schema_form("grammar", *value, context, settings);
  }
  return in_field("grammar", choice_error("grammar.type", kTypes, *type));
}

#define HR_STORE(member, expression)                      \
  [](const Json& v, const FieldContext&, TgiRequest& r) { \
    return r.member = (expression), ok_status();          \
  }

constexpr Field<TgiRequest> kTgiParameters[] = {
    {"max_new_tokens",
     FieldType::kInteger,
     {1, kTgiIntMax},
     HR_STORE(completion.settings.max_tokens, static_cast<int32_t>(integer_of(v)))},
    {"do_sample", FieldType::kBool, {}, HR_STORE(sampled, r.sampled || v.as_bool())},
    {"details", FieldType::kBool, {}, HR_STORE(details, v.as_bool())},
    {"return_full_text", FieldType::kBool, {}, HR_STORE(full_text, v.as_bool())},
    {"grammar", FieldType::kAny, {}, read_tgi_grammar, kObjectSchema},
    {"top_n_tokens",
     FieldType::kInteger,
     {0, kTgiIntMax},
     HR_STORE(completion.settings.sampling.logprobs, static_cast<int32_t>(integer_of(v)))},
};

bool not_false_flag(const Json& v) { return v != Json(false); }
bool any_value(const Json&) { return true; }

constexpr RefusedField kTgiRefused[] = {
    {"watermark", not_false_flag},
    {"decoder_input_details", not_false_flag,
     "/v1/completions with echo and logprobs tells of the prompt"},
    {"truncate", any_value, "send a prompt that fits"},
    {"adapter_id", any_value, "the routes under /v1 take adapters, by their model field"},
};

Status read_inside_parameters(const Json& parameters, const FieldContext& context,
                              TgiRequest& request) {
  HR_RETURN_IF_ERROR(check_refused(refused_generation_fields(), parameters));
  HR_RETURN_IF_ERROR(check_refused(kTgiRefused, parameters));
  for (const RefusedField& form : refused_form_fields()) {
    if (form.name == "grammar") continue;  // here it is what response_format is there
    HR_RETURN_IF_ERROR(check_refused(std::span(&form, 1), parameters));
  }
  const auto has = [&](std::string_view name) {
    const Json* value = parameters.find(name);
    return value && !value->is_null();
  };
  request.sampled = has("temperature") || has("top_p") || has("top_k");
  HR_RETURN_IF_ERROR(read_named_fields<GenerationSettings>(
      generation_fields(), kTgiShared, parameters, context, request.completion.settings));
  return read_fields<TgiRequest>(kTgiParameters, parameters, context, request);
}

Status read_parameters(const Json& value, const FieldContext& context, TgiRequest& request) {
  if (!value.is_object()) return field_error("parameters", "an object", value);
  const Status status = read_inside_parameters(value, context, request);
  if (status.ok()) return status;
  return invalid_argument("parameters." + status.message(),
                          "parameters." + std::string(status.field()));
}

constexpr Field<TgiRequest> kTgiFields[] = {
    {"inputs",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, TgiRequest& r) {
       if (!v.is_string()) return field_error("inputs", "a string", v);
       return r.inputs = v.as_string(), ok_status();
     },
     kTextSchema},
    {"stream", FieldType::kBool, {}, HR_STORE(completion.settings.stream, v.as_bool())},
    {"parse_special", FieldType::kBool, {}, HR_STORE(completion.parse_special, v.as_bool())},
    {"parameters", FieldType::kAny, {}, read_parameters, kObjectSchema},
};
#undef HR_STORE

}  // namespace

std::span<const Field<TgiRequest>> tgi_fields() { return kTgiFields; }
std::span<const Field<TgiRequest>> tgi_parameters() { return kTgiParameters; }

Result<TgiRequest> parse_tgi_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  TgiRequest request;
  GenerationSettings& settings = request.completion.settings;
  context.defaults.apply_to(settings.sampling);
  settings.max_tokens = kTgiMaxTokens;
  settings.sampling.logprobs = 0;  // every token is told with its own
  HR_RETURN_IF_ERROR(read_fields<TgiRequest>(kTgiFields, body, context, request));
  HR_RETURN_IF_ERROR(check_settings(settings, context, "parameters.top_n_tokens"));
  if (request.inputs.empty()) return invalid_argument("inputs must not be empty", "inputs");
  if (!request.sampled) settings.sampling.temperature = 0;
  request.completion.texts = {request.inputs};
  return request;
}

}  // namespace headrace
