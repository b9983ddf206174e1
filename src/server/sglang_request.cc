#include "server/sglang_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/field_schemas.h"
#include "server/sampler_names.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

constexpr double kSglangIntMax = std::numeric_limits<int32_t>::max();
constexpr int32_t kSglangMaxTokens = 128;

// Fields of the OpenAI API that sampling_params has by the same name.
constexpr auto kSamplingParams = and_samplers({
    "max_new_tokens",
    "min_new_tokens",
    "stop",
    "stop_token_ids",
    "temperature",
    "top_p",
    "top_k",
    "min_p",
    "frequency_penalty",
    "presence_penalty",
    "n",
    "repetition_penalty",
    "ignore_eos",
    "skip_special_tokens",
    "logit_bias",
});

Status read_inside_sampling(const Json& params, const FieldContext& context,
                            GenerationSettings& settings) {
  HR_RETURN_IF_ERROR(check_refused(refused_generation_fields(), params));
  HR_RETURN_IF_ERROR(read_named_fields<GenerationSettings>(generation_fields(), kSamplingParams,
                                                           params, context, settings));
  return read_some_fields<GenerationSettings>(form_fields(), sglang_form_names(), params, context,
                                              settings);
}

Status read_sampling_params(const Json& value, const FieldContext& context,
                            SglangRequest& request) {
  if (!value.is_object()) return field_error("sampling_params", "an object", value);
  const Status status = read_inside_sampling(value, context, request.completion.settings);
  if (status.ok()) return status;
  return invalid_argument("sampling_params." + status.message(),
                          "sampling_params." + std::string(status.field()));
}

Status check_count(std::string_view name, const Json& list, const FieldContext& context) {
  const size_t count = list.as_array().size();
  if (count > 0 && count <= static_cast<size_t>(context.limits.prompts_max)) return ok_status();
  return invalid_argument(
      fmt::format("{} must have 1 to {} entries, got {}", name, context.limits.prompts_max, count),
      std::string(name));
}

Status read_sglang_text(const Json& value, const FieldContext& context, SglangRequest& request) {
  if (value.is_string()) return request.completion.texts = {value.as_string()}, ok_status();
  if (!value.is_array()) return field_error("text", "a string or a list of strings", value);
  HR_RETURN_IF_ERROR(check_count("text", value, context));
  request.is_list = true;
  for (const Json& item : value.as_array()) {
    if (!item.is_string()) return field_error("text", "a string or a list of strings", value);
    request.completion.texts.push_back(item.as_string());
  }
  return ok_status();
}

Status read_input_ids(const Json& value, const FieldContext& context, SglangRequest& request) {
  constexpr size_t kAny = std::numeric_limits<size_t>::max();
  const bool lists =
      value.is_array() && !value.as_array().empty() && value.as_array()[0].is_array();
  if (!lists) {
    HR_ASSIGN_OR_RETURN(auto ids, read_token_ids("input_ids", value, context, kAny));
    return request.completion.ids = {std::move(ids)}, ok_status();
  }
  HR_RETURN_IF_ERROR(check_count("input_ids", value, context));
  request.is_list = true;
  for (const Json& item : value.as_array()) {
    HR_ASSIGN_OR_RETURN(auto ids, read_token_ids("input_ids", item, context, kAny));
    request.completion.ids.push_back(std::move(ids));
  }
  return ok_status();
}

// SGLang's higher ones go first, the engine's lower ones.
Status read_sglang_priority(const Json& value, const FieldContext&, SglangRequest& request) {
  request.completion.settings.priority = -static_cast<int32_t>(integer_of(value));
  return ok_status();
}

#define HR_STORE(member, expression)                         \
  [](const Json& v, const FieldContext&, SglangRequest& r) { \
    return r.member = (expression), ok_status();             \
  }

constexpr Field<SglangRequest> kSglangFields[] = {
    {"text", FieldType::kAny, {}, read_sglang_text},
    {"input_ids", FieldType::kAny, {}, read_input_ids},
    {"model", FieldType::kString, {}, HR_STORE(completion.settings.model, v.as_string())},
    {"stream", FieldType::kBool, {}, HR_STORE(completion.settings.stream, v.as_bool())},
    {"rid", FieldType::kString, {}, HR_STORE(id, v.as_string())},
    {"priority", FieldType::kInteger, {-kSglangIntMax, kSglangIntMax}, read_sglang_priority},
    {"parse_special", FieldType::kBool, {}, HR_STORE(completion.parse_special, v.as_bool())},
    {"return_logprob",
     FieldType::kBool,
     {},
     HR_STORE(completion.settings.sampling.logprobs, v.as_bool() ? 0 : -1)},
    // Stored behind return_logprob.
    {"top_logprobs_num",
     FieldType::kInteger,
     {0, kSglangIntMax},
     [](const Json& v, const FieldContext&, SglangRequest& r) {
       int32_t& logprobs = r.completion.settings.sampling.logprobs;
       if (logprobs >= 0) logprobs = static_cast<int32_t>(integer_of(v));
       return ok_status();
     }},
    {"sampling_params", FieldType::kAny, {}, read_sampling_params, kObjectSchema},
};
#undef HR_STORE

bool anything(const Json&) { return true; }
bool not_false(const Json& v) { return v != Json(false); }
bool not_minus_one(const Json& v) { return v != Json(-1); }

constexpr RefusedField kSglangRefused[] = {
    {"input_embeds", anything},
    {"logprob_start_len", not_minus_one,
     "/v1/completions with echo and logprobs tells of the prompt"},
    {"token_ids_logprob", anything},
    {"return_hidden_states", not_false},
    {"session_params", anything},
    {"bootstrap_host", anything, "prompts are computed where answers are"},
    {"bootstrap_port", anything, "prompts are computed where answers are"},
    {"bootstrap_room", anything, "prompts are computed where answers are"},
};

}  // namespace

std::span<const Field<SglangRequest>> sglang_fields() { return kSglangFields; }

Result<SglangRequest> parse_sglang_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_refused(refused_generation_fields(), body));
  HR_RETURN_IF_ERROR(check_refused(refused_form_fields(), body));
  HR_RETURN_IF_ERROR(check_refused(kSglangRefused, body));
  SglangRequest request;
  GenerationSettings& settings = request.completion.settings;
  context.defaults.apply_to(settings.sampling);
  settings.max_tokens = kSglangMaxTokens;
  HR_RETURN_IF_ERROR(read_fields<SglangRequest>(kSglangFields, body, context, request));
  HR_RETURN_IF_ERROR(check_settings(settings, context, "top_logprobs_num"));
  const bool texts = !request.completion.texts.empty(), ids = !request.completion.ids.empty();
  if (texts == ids) {
    return invalid_argument(
        "exactly one of text and input_ids must be given (or inputs, as text "
        "generation inference has it)",
        "text");
  }
  request.is_list = request.is_list || settings.sampling.n > 1;
  return request;
}

}  // namespace headrace
