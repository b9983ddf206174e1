#include "server/unsupported_fields.h"

#include <string>
#include <string_view>
#include <utility>

#include "server/generation_request.h"
#include "server/thought_fields.h"

namespace headrace {
namespace {

// What asks for something. A value of a type that the field cannot have does.
bool always(const Json&) { return true; }
bool if_true(const Json& v) { return !v.is_bool() || v.as_bool(); }
bool if_not_bool(const Json& v) { return !v.is_bool(); }
bool if_not_object(const Json& v) { return !v.is_object(); }
bool if_not_empty(const Json& v) {
  if (v.is_string()) return !v.as_string().empty();
  if (v.is_array()) return !v.as_array().empty();
  if (v.is_object()) return !v.as_object().empty();
  return true;
}
bool if_not_zero(const Json& v) { return !v.is_number() || v.as_double() != 0; }
bool if_not_one(const Json& v) { return !v.is_number() || v.as_double() != 1; }
bool if_positive(const Json& v) { return !v.is_number() || v.as_double() > 0; }
bool if_over_one(const Json& v) { return !v.is_number() || v.as_double() > 1; }

template <const std::string_view& word>
bool if_not_word(const Json& v) {
  return !v.is_string() || v.as_string() != word;
}
constexpr std::string_view kNone = "none", kMedium = "medium";

// llama.cpp's letter of a sampler by any of its names; 0: there is none here.
char sampler_letter(std::string_view name) {
  static constexpr std::pair<std::string_view, char> kLetters[] = {
      {"penalties", 'e'}, {"dry", 'd'},       {"top_n_sigma", 's'}, {"top-n-sigma", 's'},
      {"top_k", 'k'},     {"top-k", 'k'},     {"typ_p", 'y'},       {"typical_p", 'y'},
      {"typ-p", 'y'},     {"typical-p", 'y'}, {"typical", 'y'},     {"typ", 'y'},
      {"top_p", 'p'},     {"top-p", 'p'},     {"nucleus", 'p'},     {"min_p", 'm'},
      {"min-p", 'm'},     {"xtc", 'x'},       {"temperature", 't'}, {"temp", 't'}};
  for (const auto& [known, letter] : kLetters) {
    if (known == name) return letter;
  }
  return 0;
}

// Another list of samplers than llama.cpp's, or the order that they have here
// (ops/sampling/sample.h).
bool if_other_samplers(const Json& v) {
  if (!if_not_empty(v)) return false;
  std::string letters = v.is_string() ? v.as_string() : std::string();
  for (const Json& name : v.is_array() ? v.as_array() : Json::Array()) {
    letters += name.is_string() ? sampler_letter(name.as_string()) : '\0';
  }
  return letters != "edskypmxt" && letters != "edstmkypx";
}

bool if_not_text_format(const Json& v) {
  const Json* type = v.find("type");
  return !type || *type != Json("text");
}
bool if_not_reasoning_format(const Json& v) {
  return v != Json("none") && v != Json("auto") && v != Json("deepseek");
}
bool if_not_text_only(const Json& v) {
  return !v.is_array() || v.as_array().size() != 1 || v.as_array()[0] != Json("text");
}

constexpr std::string_view kOtherForms =
    "this API has another field for the form of answers (docs/structured_output.md)";
constexpr std::string_view kNoTriggers =
    "a form holds from the answer's beginning; strict tools are free until a call";
constexpr std::string_view kNoSampler =
    "temperature, top_k, top_p, min_p, typical_p, top_n_sigma, xtc_*, dry_* and the penalties are "
    "what there is";
constexpr std::string_view kNoAdapters =
    "adapters are named by the model field (/v1/models lists them)";
constexpr std::string_view kTemplateSwitch =
    "send chat_template_kwargs with what the model's template reads, as enable_thinking";
constexpr std::string_view kBool = "it must be true or false";
constexpr std::string_view kNoThoughtBudget =
    "/v1/chat/completions takes it; max_tokens bounds thoughts and answer together";
constexpr std::string_view kOnOpenAiRoutes = "/v1/completions and /v1/chat/completions take it";

constexpr RefusedField kForms[] = {
    {"response_format", if_not_text_format, kOtherForms},
    {"structured_outputs", if_not_empty, kOtherForms},
    {"guided_json", always, kOtherForms},
    {"guided_regex", always, kOtherForms},
    {"guided_choice", always, kOtherForms},
    {"guided_grammar", always, kOtherForms},
    {"guided_json_object", if_true, kOtherForms},
    {"grammar", if_not_empty, kOtherForms},
    {"json_schema", always, kOtherForms},
    {"regex", always, kOtherForms},
    {"ebnf", always, kOtherForms},
};

constexpr RefusedField kGeneration[] = {
    {"structural_tag", always, "send a schema as response_format, or strict tools"},
    {"format", if_not_empty, "send response_format"},
    {"guided_whitespace_pattern", always, "white space of JSON is fixed"},
    {"grammar_lazy", if_true, kNoTriggers},
    {"grammar_triggers", if_not_empty, kNoTriggers},
    {"n_cmpl", if_not_one, "send n"},
    // Samplers, of llama.cpp and its kin
    {"mirostat", if_not_zero, kNoSampler},
    {"mirostat_mode", if_not_zero, kNoSampler},
    {"tfs_z", if_not_one, kNoSampler},
    {"tfs", if_not_one, kNoSampler},
    {"top_a", if_not_zero, kNoSampler},
    {"dynatemp_range", if_not_zero, kNoSampler},
    {"smoothing_factor", if_not_zero, kNoSampler},
    {"epsilon_cutoff", if_not_zero, kNoSampler},
    {"eta_cutoff", if_not_zero, kNoSampler},
    {"adaptive_target", if_positive, kNoSampler},
    {"min_keep", if_over_one, kNoSampler},
    {"samplers", if_other_samplers,
     "their order is fixed: llama.cpp's default (\"edskypmxt\") is taken, and the order here, "
     "which "
     "begins as that does and goes on with temperature and min_p"},
    {"options", if_not_empty, "send its fields beside the prompt, in the OpenAI API's names"},
    // Tokens
    {"logits_processors", if_not_empty},
    {"custom_logit_processor", if_not_empty},
    {"vllm_xargs", if_not_empty},
    {"stop_regex", if_not_empty, "send stop"},
    {"no_stop_trim", if_true, "send include_stop_str_in_output"},
    {"t_max_predict_ms", if_positive, "max_tokens bounds an answer"},
    {"n_indent", if_positive},
    // Prompts
    {"prompt_embeds", always},
    {"images", if_not_empty, "models see no images here"},
    {"image_data", if_not_empty, "models see no images here"},
    {"kv_transfer_params", if_not_empty},
    {"lora", if_not_empty, kNoAdapters},
    {"lora_path", if_not_empty, kNoAdapters},
    // What is told of tokens
    {"n_probs", if_positive, "send logprobs"},
    {"stream_interval", if_over_one, "each token is sent as it comes"},
    {"return_progress", if_true, "GET /slots shows what runs"},
    {"timings_per_token", if_true, "the last event has the timings"},
    // What the routes of OpenAI's API read, and others do not: the last kOpenAiReads.
    {"truncate_prompt_tokens", always, "send a prompt that fits"},
    {"prompt_logprobs", always, kOnOpenAiRoutes},
    {"request_id", always, "send the header X-Request-Id"},
    {"allowed_token_ids", always, kOnOpenAiRoutes},
    {"bad_words", if_not_empty, kOnOpenAiRoutes},
    {"thinking_token_budget", always, kNoThoughtBudget},
    {"thinking_budget_tokens", always, kNoThoughtBudget},
    {"thinking_budget", always, kNoThoughtBudget},
    {"reasoning_budget", always, kNoThoughtBudget},
    {"use_beam_search", if_true, kOnOpenAiRoutes},
    {"beam_width", always, kOnOpenAiRoutes},
    {"best_of", if_not_one, kOnOpenAiRoutes},
    {"length_penalty", if_not_one, kOnOpenAiRoutes},
    {"early_stopping", if_true, kOnOpenAiRoutes},
};
constexpr size_t kOpenAiReads = 14;

std::span<const RefusedField> refused_by_openai() {
  return std::span(kGeneration).first(std::size(kGeneration) - kOpenAiReads);
}

constexpr RefusedField kChat[] = {
    {"functions", if_not_empty, "send tools"},
    {"function_call", if_not_word<kNone>, "send tools"},
    {"echo", if_true, "/v1/completions has it"},
    // A client's template is a client's program.
    {"chat_template", always, "the server's --chat-template is the one"},
    {"mm_processor_kwargs", if_not_empty},
    {"modalities", if_not_text_only, "models read and write text here"},
    {"audio", always, "models read and write text here"},
    {"web_search_options", always},
    {"verbosity", if_not_word<kMedium>, "ask for it in the prompt"},
    {"enable_thinking", always, kTemplateSwitch},
    {"think", always, kTemplateSwitch},
    {"include_reasoning", if_not_bool, kBool},
    {"separate_reasoning", if_not_bool, kBool},
    {"reasoning_format", if_not_reasoning_format, "only \"none\", \"auto\" and \"deepseek\" are"},
    {"store", if_not_bool, kBool},
    {"metadata", if_not_object, "it must be an object"},
};
// What of those asks for nothing that is not here: parse_chat_request() reads it.
constexpr std::string_view kReasoningForms[] = {"include_reasoning", "separate_reasoning",
                                                "reasoning_format"};

constexpr RefusedField kCompletion[] = {
    {"tools", if_not_empty, "/v1/chat/completions takes them"},
    {"reasoning_effort", always, "/v1/chat/completions takes it, where the template reads it"},
    {"thinking_token_budget", always, kNoThoughtBudget},
    {"thinking_budget_tokens", always, kNoThoughtBudget},
    {"thinking_budget", always, kNoThoughtBudget},
    {"reasoning_budget", always, kNoThoughtBudget},
};

}  // namespace

std::span<const RefusedField> refused_generation_fields() { return kGeneration; }
std::span<const RefusedField> refused_form_fields() { return kForms; }
std::span<const RefusedField> refused_chat_fields() { return kChat; }
std::span<const RefusedField> refused_completion_fields() { return kCompletion; }

Status check_chat_fields(const Json& body) {
  HR_RETURN_IF_ERROR(check_refused(refused_by_openai(), body));
  return check_refused(kChat, body);
}

Status check_other_chat_fields(const Json& body, std::span<const std::string_view> own) {
  HR_RETURN_IF_ERROR(check_refused(kGeneration, body));
  HR_RETURN_IF_ERROR(check_refused(kForms, body));
  for (const RefusedField& field : kChat) {
    if (!is_named(own, field.name)) {
      HR_RETURN_IF_ERROR(check_refused(std::span(&field, 1), body));
    }
  }
  for (std::string_view name : kReasoningForms) HR_RETURN_IF_ERROR(refuse_if_given(name, body));
  for (const auto& fields : {chat_fields(), thought_fields()}) {
    for (const Field<ChatRequest>& field : fields) {
      if (!is_named(own, field.name)) HR_RETURN_IF_ERROR(refuse_if_given(field.name, body));
    }
  }
  return ok_status();
}

Status check_completion_fields(const Json& body) {
  HR_RETURN_IF_ERROR(check_refused(refused_by_openai(), body));
  return check_refused(kCompletion, body);
}

}  // namespace headrace
