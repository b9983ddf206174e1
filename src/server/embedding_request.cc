#include "server/embedding_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

constexpr std::string_view kInputForms =
    "a string, an array of strings, token ids, or an array of arrays of token ids";

Status check_input_count(std::string_view name, size_t count, const FieldContext& context) {
  const auto most = static_cast<size_t>(context.limits.embedding_texts_max);
  if (count <= most) return ok_status();
  return invalid_argument(fmt::format("{} must have at most {} entries, got {}", name, most, count),
                          std::string(name));
}

Status read_input(std::string_view name, const Json& value, const FieldContext& context,
                  EmbeddingRequest& request) {
  constexpr size_t kAnyLength = std::numeric_limits<size_t>::max();
  if (value.is_string()) return request.texts = {value.as_string()}, ok_status();
  if (!value.is_array() || value.as_array().empty()) return field_error(name, kInputForms, value);
  const Json::Array& items = value.as_array();
  if (items[0].is_number()) {
    HR_ASSIGN_OR_RETURN(auto ids, read_token_ids(name, value, context, kAnyLength));
    return request.ids = {std::move(ids)}, ok_status();
  }
  HR_RETURN_IF_ERROR(check_input_count(name, items.size(), context));
  for (const Json& item : items) {
    if (item.type_name() != items[0].type_name()) return field_error(name, kInputForms, value);
    if (item.is_string()) {
      request.texts.push_back(item.as_string());
    } else if (item.is_array()) {
      HR_ASSIGN_OR_RETURN(auto ids, read_token_ids(name, item, context, kAnyLength));
      request.ids.push_back(std::move(ids));
    } else {
      return field_error(name, kInputForms, value);
    }
  }
  return ok_status();
}

Status read_encoding(const Json& value, const FieldContext&, EmbeddingRequest& request) {
  constexpr std::string_view kFormats[] = {"float", "base64"};
  const auto* found = std::find_if(std::begin(kFormats), std::end(kFormats),
                                   [&](std::string_view format) { return value == Json(format); });
  if (found == std::end(kFormats)) return choice_error("encoding_format", kFormats, value);
  request.encoding = found == kFormats ? EmbeddingEncoding::kFloat : EmbeddingEncoding::kBase64;
  return ok_status();
}

constexpr FieldRange kPositive{1, 1 << 20};

#define HR_STORE(member, expression)                            \
  [](const Json& v, const FieldContext&, EmbeddingRequest& r) { \
    return r.member = (expression), ok_status();                \
  }

constexpr Field<EmbeddingRequest> kEmbeddingFields[] = {
    {"model", FieldType::kString, {}, HR_STORE(model, v.as_string())},
    {"input",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext& c, EmbeddingRequest& r) {
       return read_input("input", v, c, r);
     }},
    {"encoding_format", FieldType::kAny, {}, read_encoding},
    {"dimensions", FieldType::kInteger, kPositive,
     HR_STORE(dimensions, static_cast<int32_t>(integer_of(v)))},
    {"truncate_prompt_tokens",
     FieldType::kInteger,
     {-1, 1 << 20},
     HR_STORE(truncate, static_cast<int32_t>(integer_of(v)))},
    {"add_special_tokens", FieldType::kBool, {}, HR_STORE(add_special, v.as_bool())},
    // A label that changes nothing.
    {"user",
     FieldType::kString,
     {},
     [](const Json&, const FieldContext&, EmbeddingRequest&) { return ok_status(); }},
};

constexpr Field<EmbeddingRequest> kOllamaEmbedFields[] = {
    {"model", FieldType::kString, {}, HR_STORE(model, v.as_string())},
    {"input",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext& c, EmbeddingRequest& r) {
       return read_input("input", v, c, r);
     }},
    {"truncate",
     FieldType::kBool,
     {},
     HR_STORE(truncate, v.as_bool() ? std::optional<int32_t>(-1) : std::nullopt)},
    {"dimensions", FieldType::kInteger, kPositive,
     HR_STORE(dimensions, static_cast<int32_t>(integer_of(v)))},
};

// Of the older route: one text, under another name.
constexpr Field<EmbeddingRequest> kOllamaPromptFields[] = {
    kOllamaEmbedFields[0],
    {"prompt",
     FieldType::kAny,
     {},
     [](const Json& v, const FieldContext&, EmbeddingRequest& r) -> Status {
       if (!v.is_string()) return field_error("prompt", "a string", v);
       r.texts = {v.as_string()};
       return ok_status();
     },
     R"({"type": "string"})"},
    kOllamaEmbedFields[2],
    kOllamaEmbedFields[3],
};
#undef HR_STORE

bool asks_at_all(const Json&) { return true; }
bool asks_for_no_f32(const Json& v) { return v != Json("float32"); }
bool asks_for_other_bytes(const Json& v) { return v != Json("native") && v != Json("little"); }

constexpr RefusedField kEmbeddingRefused[] = {
    {"messages", asks_at_all, "send the text as input: encoders have no chat template"},
    {"normalize", asks_at_all, "vectors are normalised as the model's files say: leave it out"},
    {"embed_dtype", asks_for_no_f32, "vectors are float32"},
    {"endianness", asks_for_other_bytes, "base64 is of little-endian floats"},
    {"priority", [](const Json& v) { return v != Json(0); }, "texts are computed in turn"},
};

// Ids of one text of a request that truncates: special tokens stay, what is behind goes.
void truncate_text(std::vector<TokenId>& ids, const Vocab& vocab, bool add_special, size_t most) {
  const bool front = add_special && vocab.add_bos && vocab.bos >= 0;
  const bool back = add_special && vocab.add_eos && vocab.eos >= 0;
  if (ids.size() > most) {
    ids.resize(most);
    if (back && most > static_cast<size_t>(front)) ids.back() = vocab.eos;
  }
}

Status too_long(size_t place, size_t limit) {
  return invalid_argument(
      fmt::format("input[{}] has more than the {} tokens that this model takes: send it in parts, "
                  "or ask for truncate_prompt_tokens",
                  place, limit),
      "input");
}

Result<std::vector<TokenId>> text_ids(const EmbeddingRequest& request, size_t place,
                                      const Tokenizer& tokenizer, size_t most,
                                      const RequestLimits& limits) {
  const std::string& text = request.texts[place];
  if (request.truncate && text.size() > limits.tokenize_bytes_max) {
    return invalid_argument(
        fmt::format("input[{}] has {} bytes, more than the {} that are tokenized at a time "
                    "(--max-tokenize-bytes): truncate it yourself",
                    place, text.size(), limits.tokenize_bytes_max),
        "input");
  }
  EncodeOptions options{.add_special = request.add_special};
  if (!request.truncate) options.tokens_max = most;
  HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.encode(text, options));
  if (request.truncate) truncate_text(ids, tokenizer.vocab(), request.add_special, most);
  if (ids.size() > most) return too_long(place, most);
  if (ids.empty()) {
    return invalid_argument(fmt::format("input[{}] has no tokens", place), "input");
  }
  return ids;
}

}  // namespace

std::span<const Field<EmbeddingRequest>> embedding_fields() { return kEmbeddingFields; }

Result<EmbeddingRequest> parse_embedding_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  HR_RETURN_IF_ERROR(check_refused(kEmbeddingRefused, body));
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(kEmbeddingFields, body, context, request));
  if (request.size() == 0) return invalid_argument("input is missing", "input");
  if (request.truncate == 0) {
    return invalid_argument("truncate_prompt_tokens must be -1 or at least 1, got 0",
                            "truncate_prompt_tokens");
  }
  return request;
}

Result<EmbeddingRequest> parse_ollama_embed_request(OllamaEmbedRoute route, const Json& body,
                                                    const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  request.truncate = -1;
  const bool one = route == OllamaEmbedRoute::kEmbeddings;
  const std::span<const Field<EmbeddingRequest>> fields =
      one ? std::span<const Field<EmbeddingRequest>>(kOllamaPromptFields) : kOllamaEmbedFields;
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(fields, body, context, request));
  const char* const text = one ? "prompt" : "input";
  if (request.size() == 0) return invalid_argument(fmt::format("{} is missing", text), text);
  return request;
}

Result<std::vector<std::vector<TokenId>>> embedding_ids(EmbeddingRequest request,
                                                        const Tokenizer* tokenizer,
                                                        const EmbeddingSizes& sizes,
                                                        const RequestLimits& limits) {
  if (request.dimensions > sizes.dimensions) {
    return invalid_argument(
        fmt::format("dimensions must be at most {}, which the model has, got {}", sizes.dimensions,
                    request.dimensions),
        "dimensions");
  }
  if (request.truncate && *request.truncate > sizes.length_max) {
    return invalid_argument(
        fmt::format("truncate_prompt_tokens must be at most {}, which the model takes, got {}",
                    sizes.length_max, *request.truncate),
        "truncate_prompt_tokens");
  }
  const int32_t asked = request.truncate.value_or(-1);
  const auto most = static_cast<size_t>(asked > 0 ? asked : sizes.length_max);
  if (request.texts.empty()) {
    for (size_t i = 0; i < request.ids.size(); ++i) {
      if (request.truncate && request.ids[i].size() > most) request.ids[i].resize(most);
      if (request.ids[i].size() > most) return too_long(i, most);
      if (request.ids[i].empty()) {
        return invalid_argument(fmt::format("input[{}] has no tokens", i), "input");
      }
    }
    return std::move(request.ids);
  }
  if (tokenizer == nullptr) {
    return invalid_argument("this model has no tokenizer: send token ids", "input");
  }
  std::vector<std::vector<TokenId>> ids;
  for (size_t i = 0; i < request.texts.size(); ++i) {
    HR_ASSIGN_OR_RETURN(ids.emplace_back(), text_ids(request, i, *tokenizer, most, limits));
  }
  return ids;
}

}  // namespace headrace
