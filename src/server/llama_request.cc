#include "server/llama_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/answer_form.h"
#include "server/field_schemas.h"
#include "server/unsupported_fields.h"

namespace headrace {
namespace {

constexpr double kLlamaIntMax = std::numeric_limits<int32_t>::max();
constexpr size_t kAnyCount = std::numeric_limits<size_t>::max();
constexpr size_t kOtherFilesMax = 256;

// llama.cpp's, of requests that are silent where the model's makers are too.
constexpr SamplingDefaults kLlamaSampling = {
    .temperature = 0.8f, .top_p = 0.95f, .top_k = 40, .min_p = 0.05f};

// llama.cpp's prompt beside pictures, of which there are none here.
Result<MixedPrompt> read_prompt_object(const Json& value) {
  const Json* text = value.find("prompt_string");
  if (!text || !text->is_string()) {
    return invalid_argument("prompt.prompt_string must be a string", "prompt");
  }
  const Json* pictures = value.find("multimodal_data");
  if (pictures && !pictures->is_null() && *pictures != Json::array()) {
    return invalid_argument("prompt.multimodal_data is not supported: models see no images here",
                            "prompt");
  }
  return MixedPrompt{text->as_string()};
}

// The forms of one prompt: a text, ids, both in a list, or an object with a text.
Result<MixedPrompt> read_mixed_prompt(const Json& value, const FieldContext& context) {
  if (value.is_object()) return read_prompt_object(value);
  MixedPrompt prompt;
  if (value.is_string()) {
    prompt.emplace_back(value.as_string());
    return prompt;
  }
  if (!value.is_array()) {
    return field_error("prompt", "a string, token ids, a list of both, or a list of prompts",
                       value);
  }
  Json::Array ids;
  const auto take_ids = [&]() -> Status {
    if (ids.empty()) return ok_status();
    HR_ASSIGN_OR_RETURN(auto read,
                        read_token_ids("prompt", Json(std::exchange(ids, {})), context, kAnyCount));
    prompt.emplace_back(std::move(read));
    return ok_status();
  };
  for (const Json& item : value.as_array()) {
    if (!item.is_string()) {
      ids.push_back(item);
      continue;
    }
    HR_RETURN_IF_ERROR(take_ids());
    prompt.emplace_back(item.as_string());
  }
  HR_RETURN_IF_ERROR(take_ids());
  return prompt;
}

// A list of texts alone, or one that holds lists, is a list of prompts.
bool is_prompt_list(const Json& value) {
  if (!value.is_array() || value.as_array().empty()) return false;
  const Json::Array& items = value.as_array();
  return std::all_of(items.begin(), items.end(), [](const Json& v) { return v.is_string(); }) ||
         std::any_of(items.begin(), items.end(),
                     [](const Json& v) { return v.is_array() || v.is_object(); });
}

Status read_llama_prompt(const Json& value, const FieldContext& context, LlamaRequest& request) {
  if (!is_prompt_list(value)) {
    HR_ASSIGN_OR_RETURN(MixedPrompt prompt, read_mixed_prompt(value, context));
    if (!prompt.empty()) request.prompts.push_back(std::move(prompt));
    return ok_status();
  }
  if (value.as_array().size() > static_cast<size_t>(context.limits.prompts_max)) {
    return invalid_argument(fmt::format("prompt must have at most {} entries, got {}",
                                        context.limits.prompts_max, value.as_array().size()),
                            "prompt");
  }
  for (const Json& item : value.as_array()) {
    HR_ASSIGN_OR_RETURN(MixedPrompt prompt, read_mixed_prompt(item, context));
    request.prompts.push_back(std::move(prompt));
  }
  return ok_status();
}

Status read_biased_text(const Json& item, const std::string& name, LlamaRequest& request) {
  constexpr double kForbids = -100;
  const Json& bias = item.as_array()[1];
  const double value = bias == Json(false) ? kForbids
                       : bias.is_number()  ? bias.as_double()
                                           : kForbids - 1;
  if (value < kForbids || value > -kForbids) {
    return in_field("logit_bias",
                    field_error(name + "[1]", "a number in [-100, 100] or false", bias));
  }
  request.biased_texts.emplace_back(item.as_array()[0].as_string(), static_cast<float>(value));
  return ok_status();
}

// llama.cpp's list of [id, bias], where false forbids the token, as the object that OpenAI has. In
// the place of an id may be a text, which goes to the request.
Result<Json> bias_object(const Json& value, const FieldContext& context, LlamaRequest& request) {
  if (!value.is_array()) return value;
  constexpr double kForbids = -100;
  if (value.as_array().size() > static_cast<size_t>(context.limits.logit_bias_max)) {
    return field_error("logit_bias",
                       fmt::format("a list of at most {} entries", context.limits.logit_bias_max),
                       value);
  }
  Json biases = Json::object();
  for (size_t i = 0; i < value.as_array().size(); ++i) {
    const Json& item = value.as_array()[i];
    const std::string name = fmt::format("logit_bias[{}]", i);
    const bool pair = item.is_array() && item.as_array().size() == 2;
    if (pair && item.as_array()[0].is_string()) {
      HR_RETURN_IF_ERROR(read_biased_text(item, name, request));
      continue;
    }
    if (!pair || !item.as_array()[0].is_int()) {
      return in_field(
          "logit_bias",
          field_error(name, "[token id or text, bias], where the bias is a number or false", item));
    }
    const Json& bias = item.as_array()[1];
    biases.set(fmt::format("{}", item.as_array()[0].as_int()),
               bias == Json(false) ? Json(kForbids) : bias);
  }
  return biases;
}

bool is_refused_field(std::string_view name) {
  const std::span<const RefusedField> refused = refused_generation_fields();
  return std::any_of(refused.begin(), refused.end(),
                     [&](const RefusedField& field) { return field.name == name; });
}

// The fields that are OpenAI's too, but for those that check_llama_refused() is about; logit_bias
// in both forms.
Status read_shared_fields(const Json& body, const FieldContext& context, LlamaRequest& request) {
  GenerationSettings& settings = request.settings;
  for (const Field<GenerationSettings>& field : generation_fields()) {
    if (is_refused_field(field.name)) continue;
    const Json* biases = field.name == "logit_bias" ? body.find(field.name) : nullptr;
    if (!biases || biases->is_null()) {
      HR_RETURN_IF_ERROR(read_field(field, body, context, settings));
      continue;
    }
    HR_ASSIGN_OR_RETURN(Json object, bias_object(*biases, context, request));
    HR_RETURN_IF_ERROR(
        read_field(field, Json::object().set(field.name, std::move(object)), context, settings));
  }
  return ok_status();
}

// Every form of an answer that the OpenAI API's requests take; grammar and json_schema are its own.
Status read_forms(const Json& body, const FieldContext& context, LlamaRequest& request) {
  return read_fields<GenerationSettings>(form_fields(), body, context, request.settings);
}

Status check_llama_refused(const Json& body) {
  static constexpr auto kAsksFor = [](const Json& v) { return v != Json(false); };
  static constexpr RefusedField kRefused[] = {
      {"post_sampling_probs", kAsksFor, "n_probs tells the probabilities of the plain softmax"},
      {"response_fields", [](const Json& v) { return v != Json::array(); }},
  };
  for (const RefusedField& field : refused_generation_fields()) {
    if (field.name == "n_probs") continue;  // here it is what OpenAI's logprobs are
    HR_RETURN_IF_ERROR(check_refused(std::span(&field, 1), body));
  }
  return check_refused(kRefused, body);
}

Status accept_value(const Json&, const FieldContext&, LlamaRequest&) { return ok_status(); }

#define HR_STORE(member, expression)                        \
  [](const Json& v, const FieldContext&, LlamaRequest& r) { \
    return r.member = (expression), ok_status();            \
  }

constexpr Field<LlamaRequest> kLlamaFields[] = {
    {"prompt", FieldType::kAny, {}, read_llama_prompt},
    {"n_probs",
     FieldType::kInteger,
     {0, kLlamaIntMax},
     [](const Json& v, const FieldContext&, LlamaRequest& r) {
       const auto count = static_cast<int32_t>(integer_of(v));
       return r.settings.sampling.logprobs = count > 0 ? count : -1, ok_status();
     }},
    {"return_tokens", FieldType::kBool, {}, HR_STORE(return_tokens, v.as_bool())},
    {"parse_special", FieldType::kBool, {}, HR_STORE(parse_special, v.as_bool())},
    // Where an answer is computed, and what of the cache is used, is the engine's own business.
    {"id_slot", FieldType::kInteger, {-1, kLlamaIntMax}, accept_value},
    {"cache_prompt", FieldType::kBool, {}, accept_value},
    {"n_keep", FieldType::kInteger, {-1, kLlamaIntMax}, accept_value},
    {"n_discard", FieldType::kInteger, {0, kLlamaIntMax}, accept_value},
};

template <std::string LlamaRequest::*kMember>
Status read_infill_text(std::string_view name, const Json& value, LlamaRequest& request) {
  if (!value.is_string()) return field_error(name, "a string", value);
  request.*kMember = value.as_string();
  return ok_status();
}

Status read_other_files(const Json& value, const FieldContext&, LlamaRequest& request) {
  constexpr std::string_view kForm = "a list of at most 256 objects {filename, text}";
  static_assert(kOtherFilesMax == 256);
  if (!value.is_array() || value.as_array().size() > kOtherFilesMax) {
    return field_error("input_extra", kForm, value);
  }
  for (const Json& item : value.as_array()) {
    const Json* name = item.find("filename");
    const Json* text = item.find("text");
    const bool good = text && text->is_string() && (!name || name->is_string());
    if (!good) return field_error("input_extra", kForm, item);
    request.others.push_back({name ? name->as_string() : "tmp", text->as_string()});
  }
  return ok_status();
}

constexpr Field<LlamaRequest> kInfillFields[] = {
    {"input_prefix",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, LlamaRequest& r) {
       return read_infill_text<&LlamaRequest::before>("input_prefix", v, r);
     },
     kTextSchema},
    {"input_suffix",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, LlamaRequest& r) {
       return read_infill_text<&LlamaRequest::behind>("input_suffix", v, r);
     },
     kTextSchema},
    {"input_extra", FieldType::kAny, {}, read_other_files},
};
#undef HR_STORE

void append_ids(std::vector<TokenId>& ids, const std::vector<TokenId>& more) {
  ids.insert(ids.end(), more.begin(), more.end());
}

}  // namespace

std::span<const Field<LlamaRequest>> llama_fields() { return kLlamaFields; }
std::span<const Field<LlamaRequest>> infill_fields() { return kInfillFields; }

SamplingDefaults llama_sampling(const SamplingDefaults& of_model) {
  return of_model.over(kLlamaSampling);
}

Result<LlamaRequest> parse_llama_completion(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_llama_refused(body));
  LlamaRequest request;
  llama_sampling(context.defaults).apply_to(request.settings.sampling);
  request.settings.sampling.penalty_window = kLlamaPenaltyWindow;
  HR_RETURN_IF_ERROR(read_shared_fields(body, context, request));
  HR_RETURN_IF_ERROR(read_forms(body, context, request));
  HR_RETURN_IF_ERROR(read_fields<LlamaRequest>(kLlamaFields, body, context, request));
  ignore_empty_penalty_window(request.settings);
  HR_RETURN_IF_ERROR(check_settings(request.settings, context, "n_probs"));
  return request;
}

Result<LlamaRequest> parse_llama_infill(const Json& body, const FieldContext& context) {
  HR_ASSIGN_OR_RETURN(LlamaRequest request, parse_llama_completion(body, context));
  for (std::string_view name : {"input_prefix", "input_suffix"}) {
    const Json* text = body.find(name);
    if (!text || text->is_null()) {
      return invalid_argument(fmt::format("{} is missing", name), std::string(name));
    }
  }
  HR_RETURN_IF_ERROR(read_fields<LlamaRequest>(kInfillFields, body, context, request));
  if (request.prompts.size() > 1) {
    return invalid_argument("prompt must be one prompt: it goes on with input_prefix", "prompt");
  }
  return request;
}

Status put_biased_texts(const Tokenizer* tokenizer, const RequestLimits& limits,
                        LlamaRequest& request) {
  if (request.biased_texts.empty()) return ok_status();
  const auto most = static_cast<size_t>(limits.logit_bias_max);
  if (!tokenizer) {
    return invalid_argument("logit_bias must be of token ids: this model has no tokenizer",
                            "logit_bias");
  }
  auto& biases = request.settings.sampling.logit_bias;
  for (const auto& [text, bias] : request.biased_texts) {
    HR_ASSIGN_OR_RETURN(const auto ids,
                        tokenizer->encode(text, {.add_special = false, .tokens_max = most}));
    for (TokenId id : ids) {
      const auto own = std::find_if(biases.begin(), biases.end(),
                                    [id = id](const auto& each) { return each.first == id; });
      if (own != biases.end()) {
        own->second = bias;  // the last one counts
      } else {
        biases.emplace_back(id, bias);
      }
    }
    if (biases.size() <= most) continue;
    return invalid_argument(fmt::format("logit_bias has texts of more than {} tokens", most),
                            "logit_bias");
  }
  return ok_status();
}

Result<std::vector<TokenId>> encode_mixed(const Tokenizer* tokenizer, const MixedPrompt& prompt,
                                          EncodeOptions options) {
  std::vector<TokenId> ids;
  for (const PromptPiece& piece : prompt) {
    if (const auto* given = std::get_if<std::vector<TokenId>>(&piece)) {
      append_ids(ids, *given);
    } else {
      HR_ASSIGN_OR_RETURN(const auto encoded,
                          tokenizer->encode(std::get<std::string>(piece), options));
      append_ids(ids, encoded);
    }
    options.add_special = false;
    options.behind_token = true;
  }
  return ids;
}

Result<std::vector<TokenId>> encode_infill(const Tokenizer& tokenizer, const FillInTokens& marks,
                                           const LlamaRequest& request, size_t tokens_max) {
  const EncodeOptions options{.add_special = false, .behind_token = true, .tokens_max = tokens_max};
  if (!request.others.empty() && marks.file < 0) {
    return invalid_argument("input_extra is not supported by this model: it has no mark for files",
                            "input_extra");
  }
  HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.encode("", {.add_special = true}));
  const auto append = [&](std::string_view text) -> Status {
    HR_ASSIGN_OR_RETURN(const auto encoded, tokenizer.encode(text, options));
    return append_ids(ids, encoded), ok_status();
  };
  if (!request.others.empty() && marks.repository >= 0) {
    ids.push_back(marks.repository);
    HR_RETURN_IF_ERROR(append("myproject\n"));
  }
  for (const FileText& file : request.others) {
    ids.push_back(marks.file);
    HR_RETURN_IF_ERROR(append(file.name + "\n" + file.text));
  }
  if (!request.others.empty()) {
    ids.push_back(marks.file);
    HR_RETURN_IF_ERROR(append("filename\n"));
  }
  ids.push_back(marks.prefix);
  HR_RETURN_IF_ERROR(append(request.before));
  if (!request.prompts.empty()) {
    HR_ASSIGN_OR_RETURN(const auto more, encode_mixed(&tokenizer, request.prompts[0], options));
    append_ids(ids, more);
  }
  ids.push_back(marks.suffix);
  if (request.behind_ids.empty()) HR_RETURN_IF_ERROR(append(request.behind));
  append_ids(ids, request.behind_ids);
  ids.push_back(marks.middle);
  return ids;
}

}  // namespace headrace
