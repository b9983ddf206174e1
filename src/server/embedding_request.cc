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

constexpr std::string_view kPoolingTasks[] = {"embed", "classify"};

Status read_task(const Json& value, const FieldContext&, EmbeddingRequest& request) {
  for (const std::string_view task : kPoolingTasks) {
    if (value == Json(task)) return request.task = task, ok_status();
  }
  return choice_error("task", kPoolingTasks, value);
}

constexpr Field<EmbeddingRequest> kPoolingFields[] = {
    {"use_activation", FieldType::kBool, {}, HR_STORE(use_activation, v.as_bool())},
    {"task", FieldType::kAny, {}, read_task, R"({"enum": ["embed", "classify"]})"},
};

constexpr std::string_view kClassifyTaken[] = {"model", "input", "truncate_prompt_tokens",
                                               "add_special_tokens", "user"};

// Of kEmbeddingFields.
constexpr std::string_view kLlamaEmbedTaken[] = {
    "model", "input", "dimensions", "truncate_prompt_tokens", "add_special_tokens", "user"};

constexpr Field<EmbeddingRequest> kLlamaEmbedFields[] = {
    {"content", FieldType::kAny, {}, [](const Json& v, const FieldContext& c, EmbeddingRequest& r) {
       return r.field = "content", read_input("content", v, c, r);
     }}};

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
    {"messages", asks_at_all, "send the text as input"},
    {"normalize", asks_at_all, "vectors are normalised as the model's files say: leave it out"},
    // llama.cpp's: 2 is the Euclidean norm, which is what a model's files ask for where they ask.
    {"embd_normalize", [](const Json& v) { return v != Json(2); },
     "vectors are normalised as the model's files say: leave it out"},
    {"embed_dtype", asks_for_no_f32, "vectors are float32"},
    {"endianness", asks_for_other_bytes, "base64 is of little-endian floats"},
    {"priority", [](const Json& v) { return v != Json(0); }, "texts are computed in turn"},
};

// A classifier's switch, which of vectors would mean their length.
constexpr RefusedField kVectorRefused[] = {
    {"use_activation", [](const Json& v) { return v != Json(true); },
     "vectors are normalised as the model's files say: leave it out"},
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

Status text_empty(std::string_view field, size_t place) {
  return invalid_argument(fmt::format("{}[{}] has no tokens", field, place), std::string(field));
}

Result<std::vector<TokenId>> text_ids(const EmbeddingRequest& request, size_t place,
                                      const Tokenizer& tokenizer, size_t most,
                                      const RequestLimits& limits) {
  const std::string& text = request.texts[place];
  if (request.truncate) {
    HR_RETURN_IF_ERROR(check_truncated_bytes(request.field, place, text.size(), limits));
  }
  EncodeOptions options{.add_special = request.add_special};
  if (!request.truncate) options.tokens_max = most;
  HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, tokenizer.encode(text, options));
  if (request.truncate) truncate_text(ids, tokenizer.vocab(), request.add_special, most);
  if (ids.size() > most) return text_too_long(request.field, place, most);
  if (ids.empty()) return text_empty(request.field, place);
  return ids;
}

// What every parser of this file ends with.
Result<EmbeddingRequest> checked_embedding(EmbeddingRequest request) {
  if (request.size() == 0) return invalid_argument("input is missing", "input");
  HR_RETURN_IF_ERROR(check_truncate(request.truncate));
  return request;
}

}  // namespace

std::span<const Field<EmbeddingRequest>> embedding_fields() { return kEmbeddingFields; }

Result<EmbeddingRequest> parse_embedding_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  HR_RETURN_IF_ERROR(check_refused(kEmbeddingRefused, body));
  HR_RETURN_IF_ERROR(check_refused(kVectorRefused, body));
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(kEmbeddingFields, body, context, request));
  return checked_embedding(std::move(request));
}

Result<EmbeddingRequest> parse_llama_embedding_request(const Json& body,
                                                       const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  HR_RETURN_IF_ERROR(check_refused(kEmbeddingRefused, body));
  HR_RETURN_IF_ERROR(check_refused(kVectorRefused, body));
  const Json* input = body.find("input");
  const Json* content = body.find("content");
  if (input && content && !input->is_null() && !content->is_null()) {
    return invalid_argument("content is another name of input: send one of them", "content");
  }
  HR_RETURN_IF_ERROR(read_some_fields<EmbeddingRequest>(kEmbeddingFields, kLlamaEmbedTaken, body,
                                                        context, request));
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(kLlamaEmbedFields, body, context, request));
  if (request.size() == 0) return invalid_argument("content is missing", "content");
  HR_RETURN_IF_ERROR(check_truncate(request.truncate));
  return request;
}

Result<EmbeddingRequest> parse_pooling_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  HR_RETURN_IF_ERROR(check_refused(kEmbeddingRefused, body));
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(kEmbeddingFields, body, context, request));
  HR_RETURN_IF_ERROR(read_fields<EmbeddingRequest>(kPoolingFields, body, context, request));
  return checked_embedding(std::move(request));
}

Result<EmbeddingRequest> parse_classify_request(const Json& body, const FieldContext& context) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  EmbeddingRequest request;
  HR_RETURN_IF_ERROR(check_refused(kEmbeddingRefused, body));
  HR_RETURN_IF_ERROR(
      read_some_fields<EmbeddingRequest>(kEmbeddingFields, kClassifyTaken, body, context, request));
  HR_RETURN_IF_ERROR(read_field(kPoolingFields[0], body, context, request));
  return checked_embedding(std::move(request));
}

std::span<const Field<EmbeddingRequest>> pooling_fields() { return kPoolingFields; }

Status check_truncate(const std::optional<int32_t>& truncate) {
  if (truncate != 0) return ok_status();
  return invalid_argument("truncate_prompt_tokens must be -1 or at least 1, got 0",
                          "truncate_prompt_tokens");
}

Result<size_t> text_tokens_max(const std::optional<int32_t>& truncate,
                               const EmbeddingSizes& sizes) {
  const int32_t asked = truncate.value_or(-1);
  if (asked <= sizes.length_max) {
    return static_cast<size_t>(asked > 0 ? asked : sizes.length_max);
  }
  return invalid_argument(
      fmt::format("truncate_prompt_tokens must be at most {}, which the model takes, got {}",
                  sizes.length_max, asked),
      "truncate_prompt_tokens");
}

Status check_truncated_bytes(std::string_view field, size_t place, size_t bytes,
                             const RequestLimits& limits) {
  if (bytes <= limits.tokenize_bytes_max) return ok_status();
  return invalid_argument(
      fmt::format("{}[{}] has {} bytes, more than the {} that are tokenized at a time "
                  "(--max-tokenize-bytes): truncate it yourself",
                  field, place, bytes, limits.tokenize_bytes_max),
      std::string(field));
}

Status text_too_long(std::string_view field, size_t place, size_t limit) {
  return invalid_argument(
      fmt::format("{}[{}] has more than the {} tokens that this model takes: send it in parts, or "
                  "ask for truncate_prompt_tokens",
                  field, place, limit),
      std::string(field));
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
  HR_ASSIGN_OR_RETURN(const size_t most, text_tokens_max(request.truncate, sizes));
  if (request.texts.empty()) {
    for (size_t i = 0; i < request.ids.size(); ++i) {
      if (request.truncate && request.ids[i].size() > most) request.ids[i].resize(most);
      if (request.ids[i].size() > most) return text_too_long(request.field, i, most);
      if (request.ids[i].empty()) return text_empty(request.field, i);
    }
    return std::move(request.ids);
  }
  if (tokenizer == nullptr) {
    return invalid_argument("this model has no tokenizer: send token ids", request.field);
  }
  std::vector<std::vector<TokenId>> ids;
  for (size_t i = 0; i < request.texts.size(); ++i) {
    HR_ASSIGN_OR_RETURN(ids.emplace_back(), text_ids(request, i, *tokenizer, most, limits));
  }
  return ids;
}

}  // namespace headrace
