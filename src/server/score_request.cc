#include "server/score_request.h"

#include <algorithm>
#include <limits>
#include <utility>

#include <fmt/format.h>

#include "server/field_schemas.h"
#include "text/text_pair.h"

namespace headrace {
namespace {

constexpr std::string_view kTextForms =
    "a string, or an array of strings or of objects with a text";

// A string, or {"text": "..."}; null: another thing.
const std::string* compared_text(const Json& value) {
  const Json* const text = value.is_object() ? value.find("text") : &value;
  return text != nullptr && text->is_string() ? &text->as_string() : nullptr;
}

// Of one side; a second field of the same side is refused.
Status take_side(std::string_view name, std::string_view& field) {
  if (!field.empty()) {
    return invalid_argument(
        fmt::format("{} and {} are names of the same field: send one", name, field),
        std::string(name));
  }
  field = name;
  return ok_status();
}

Status read_side(std::string_view name, const Json& value, const FieldContext& context,
                 std::vector<std::string>& texts, std::string_view& field) {
  HR_RETURN_IF_ERROR(take_side(name, field));
  if (const std::string* const one = compared_text(value)) return texts = {*one}, ok_status();
  if (!value.is_array() || value.as_array().empty()) return field_error(name, kTextForms, value);
  const Json::Array& items = value.as_array();
  const auto most = static_cast<size_t>(context.limits.embedding_texts_max);
  if (items.size() > most) {
    return invalid_argument(
        fmt::format("{} must have at most {} entries, got {}", name, most, items.size()),
        std::string(name));
  }
  for (const Json& item : items) {
    const std::string* const text = compared_text(item);
    if (text == nullptr) return field_error(name, kTextForms, value);
    texts.push_back(*text);
  }
  return ok_status();
}

Status read_compared_query(const Json& value, const FieldContext&, ScoreRequest& request) {
  HR_RETURN_IF_ERROR(take_side("query", request.first_field));
  const std::string* const text = compared_text(value);
  if (text == nullptr) return field_error("query", "a string, or an object with a text", value);
  request.first = {*text};
  return ok_status();
}

#define HR_STORE(member, expression)                        \
  [](const Json& v, const FieldContext&, ScoreRequest& r) { \
    return r.member = (expression), ok_status();            \
  }
#define HR_FIRST(name)                                              \
  {                                                                 \
    name, FieldType::kAny, {},                                      \
        [](const Json& v, const FieldContext& c, ScoreRequest& r) { \
          return read_side(name, v, c, r.first, r.first_field);     \
        },                                                          \
        kComparedTextsSchema                                        \
  }
#define HR_SECOND(name)                                             \
  {                                                                 \
    name, FieldType::kAny, {},                                      \
        [](const Json& v, const FieldContext& c, ScoreRequest& r) { \
          return read_side(name, v, c, r.second, r.second_field);   \
        },                                                          \
        kComparedTextsSchema                                        \
  }

constexpr FieldRange kTextTokens{1, 1 << 20};
constexpr FieldRange kRanks{0, std::numeric_limits<int32_t>::max()};

constexpr Field<ScoreRequest> kModelField = {
    "model", FieldType::kString, {}, HR_STORE(model, v.as_string())};
constexpr Field<ScoreRequest> kPairTruncateField = {
    "truncate_prompt_tokens",
    FieldType::kInteger,
    {-1, 1 << 20},
    HR_STORE(truncate, static_cast<int32_t>(integer_of(v)))};
constexpr Field<ScoreRequest> kActivationField = {
    "use_activation", FieldType::kBool, {}, HR_STORE(use_activation, v.as_bool())};
// A label that changes nothing.
constexpr Field<ScoreRequest> kUserField = {
    "user", FieldType::kString, {}, [](const Json&, const FieldContext&, ScoreRequest&) {
      return ok_status();
    }};
constexpr Field<ScoreRequest> kQueryField = {
    "query", FieldType::kAny, {}, read_compared_query, kComparedTextSchema};

constexpr Field<ScoreRequest> kScoreFields[] = {
    kModelField,         HR_FIRST("text_1"),     HR_FIRST("queries"), HR_FIRST("data_1"),
    HR_SECOND("text_2"), HR_SECOND("documents"), HR_SECOND("items"),  HR_SECOND("data_2"),
    kPairTruncateField,  kActivationField,       kUserField,
};

constexpr Field<ScoreRequest> kRerankFields[] = {
    kModelField,
    kQueryField,
    HR_SECOND("documents"),
    {"top_n", FieldType::kInteger, kRanks, HR_STORE(top_n, static_cast<int32_t>(integer_of(v)))},
    {"return_documents", FieldType::kBool, {}, HR_STORE(return_documents, v.as_bool())},
    {"max_tokens_per_doc", FieldType::kInteger, kTextTokens,
     HR_STORE(second_tokens_max, static_cast<int32_t>(integer_of(v)))},
    kPairTruncateField,
    kActivationField,
    kUserField,
};

constexpr Field<ScoreRequest> kTeiFields[] = {
    kQueryField,
    HR_SECOND("texts"),
    {"raw_scores", FieldType::kBool, {}, HR_STORE(use_activation, !v.as_bool())},
    {"return_text", FieldType::kBool, {}, HR_STORE(return_documents, v.as_bool())},
    {"truncate",
     FieldType::kBool,
     {},
     HR_STORE(truncate, v.as_bool() ? std::optional<int32_t>(-1) : std::nullopt)},
};
#undef HR_SECOND
#undef HR_FIRST
#undef HR_STORE

bool score_asks_at_all(const Json&) { return true; }
bool cuts_elsewhere(const Json& v) { return v != Json("right") && v != Json("Right"); }

constexpr RefusedField kScoreRefused[] = {
    {"priority", [](const Json& v) { return v != Json(0); }, "texts are computed in turn"},
    {"mm_processor_kwargs", score_asks_at_all, "models see no images here"},
    {"rank_fields", score_asks_at_all, "send documents as texts"},
    {"max_chunks_per_doc", score_asks_at_all, "a document is read whole: send max_tokens_per_doc"},
    {"truncation_side", cuts_elsewhere, "texts lose their end"},
    {"truncation_direction", cuts_elsewhere, "texts lose their end"},
};

Status missing_field(std::string_view name) {
  return invalid_argument(fmt::format("{} is missing", name), std::string(name));
}

// `first` and `second`: the fields' names where a body has none of a side.
Result<ScoreRequest> parse_fields(std::span<const Field<ScoreRequest>> fields,
                                  std::string_view first, std::string_view second, const Json& body,
                                  const FieldContext& context, ScoreRequest request) {
  if (!body.is_object()) return invalid_argument("the body must be a JSON object");
  HR_RETURN_IF_ERROR(check_refused(kScoreRefused, body));
  HR_RETURN_IF_ERROR(read_fields<ScoreRequest>(fields, body, context, request));
  if (request.first.empty()) return missing_field(first);
  if (request.second.empty()) return missing_field(second);
  HR_RETURN_IF_ERROR(check_truncate(request.truncate));
  const size_t count = request.first.size();
  if (count == 1 || count == request.second.size()) return request;
  return invalid_argument(
      fmt::format("{} must have one text, or as many as {}, which has {}, got {}",
                  request.first_field, request.second_field, request.second.size(), count),
      std::string(request.first_field));
}

// Ids of all texts of a side, without special tokens; more than `most` only where pairs are cut.
Result<std::vector<std::vector<TokenId>>> side_ids(const ScoreRequest& request, bool is_second,
                                                   const Tokenizer& tokenizer, size_t most,
                                                   const RequestLimits& limits) {
  const std::vector<std::string>& texts = is_second ? request.second : request.first;
  const std::string_view field = is_second ? request.second_field : request.first_field;
  const auto cut = static_cast<size_t>(is_second ? request.second_tokens_max : 0);
  const bool whole = request.truncate || cut > 0;
  std::vector<std::vector<TokenId>> side;
  for (size_t i = 0; i < texts.size(); ++i) {
    if (whole) HR_RETURN_IF_ERROR(check_truncated_bytes(field, i, texts[i].size(), limits));
    EncodeOptions options{.add_special = false};
    if (!whole) options.tokens_max = most;
    HR_ASSIGN_OR_RETURN(side.emplace_back(), tokenizer.encode(texts[i], options));
    if (cut > 0 && side.back().size() > cut) side.back().resize(cut);
  }
  return side;
}

EmbeddingRequest embedding_of_side(std::vector<std::string> texts, std::string_view field,
                                   std::optional<int32_t> truncate) {
  EmbeddingRequest request;
  request.texts = std::move(texts);
  request.field = field;
  request.truncate = truncate;
  return request;
}

}  // namespace

std::span<const Field<ScoreRequest>> score_fields() { return kScoreFields; }
std::span<const Field<ScoreRequest>> rerank_fields() { return kRerankFields; }
std::span<const Field<ScoreRequest>> tei_rerank_fields() { return kTeiFields; }

Result<ScoreRequest> parse_score_request(const Json& body, const FieldContext& context) {
  return parse_fields(kScoreFields, "text_1", "text_2", body, context, {});
}

Result<ScoreRequest> parse_rerank_request(const Json& body, const FieldContext& context) {
  return parse_fields(kRerankFields, "query", "documents", body, context, {});
}

Result<ScoreRequest> parse_tei_rerank_request(const Json& body, const FieldContext& context) {
  ScoreRequest request;
  request.return_documents = false;
  return parse_fields(kTeiFields, "query", "texts", body, context, std::move(request));
}

namespace {

// Of one request: four of as many texts of 512 tokens as a request may have.
constexpr size_t kPairTokensMax = size_t{1} << 20;

Status pair_too_long(std::string_view field, size_t place, size_t limit) {
  return invalid_argument(
      fmt::format("pair {} has more than the {} tokens that this model takes: send {} in parts, or "
                  "ask for truncate_prompt_tokens",
                  place, limit, field),
      std::string(field));
}

Status too_many_pair_tokens(const ScoreRequest& request) {
  return invalid_argument(
      fmt::format("{} pairs have more than {} tokens in all: send fewer at a time",
                  request.second.size(), kPairTokensMax),
      std::string(request.second_field));
}

}  // namespace

Result<std::vector<EmbeddingText>> pair_texts(const ScoreRequest& request,
                                              const Tokenizer* tokenizer,
                                              const EmbeddingSizes& sizes,
                                              const RequestLimits& limits) {
  if (tokenizer == nullptr || !tokenizer->vocab().pair) {
    return invalid_argument(tokenizer ? "this model's tokenizer has no form of pairs of texts"
                                      : "this model has no tokenizer, and texts are scored as such",
                            std::string(request.first_field));
  }
  const PairFrame& frame = *tokenizer->vocab().pair;
  HR_ASSIGN_OR_RETURN(const size_t most, text_tokens_max(request.truncate, sizes));
  if (most <= frame.size()) {
    return invalid_argument(fmt::format("truncate_prompt_tokens must be more than the {} special "
                                        "tokens of a pair, got {}",
                                        frame.size(), most),
                            "truncate_prompt_tokens");
  }
  const size_t room = most - frame.size();
  HR_ASSIGN_OR_RETURN(const auto first, side_ids(request, false, *tokenizer, most, limits));
  HR_ASSIGN_OR_RETURN(const auto second, side_ids(request, true, *tokenizer, most, limits));
  std::vector<EmbeddingText> texts;
  texts.reserve(second.size());
  size_t tokens = 0;  // the first text is read again with each second one
  for (size_t i = 0; i < second.size(); ++i) {
    const TokenSpan a = first[first.size() == 1 ? 0 : i], b = second[i];
    const PairLengths kept = longest_first({a.size(), b.size()}, room);
    if (kept.first + kept.second < a.size() + b.size() && !request.truncate) {
      return pair_too_long(a.size() > room ? request.first_field : request.second_field, i, most);
    }
    tokens += kept.first + kept.second + frame.size();
    if (tokens > kPairTokensMax) return too_many_pair_tokens(request);
    EmbeddingText& text = texts.emplace_back();
    text.ids = join_pair(frame, a.first(kept.first), b.first(kept.second));
    if (frame.second_type) {
      text.second_count = static_cast<int32_t>(kept.second + frame.back.size());
    }
  }
  return texts;
}

namespace {

// Makes the prompts of pairs, and cuts their second texts until they fit.
class PairPrompts {
 public:
  PairPrompts(const ScoreRequest& request, const ChatPromptEncoder* prompts,
              const Tokenizer& tokenizer, size_t most)
      : request_(request), prompts_(prompts), tokenizer_(tokenizer), most_(most) {}

  Result<std::vector<TokenId>> ids(size_t pair) const {
    std::string second = request_.second[pair];
    if (request_.second_tokens_max > 0) {
      HR_ASSIGN_OR_RETURN(second, cut(second, static_cast<size_t>(request_.second_tokens_max)));
    }
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, encode(request_.first_of(pair), second));
    // Ids at the seam depend on both sides: what is over may be found in a few steps.
    for (int step = 0; step < kStepsMax && ids.size() > most_ && request_.truncate; ++step) {
      HR_ASSIGN_OR_RETURN(const auto alone, tokenizer_.encode(second, {.add_special = false}));
      const size_t over = ids.size() - most_;
      if (over > alone.size()) break;
      HR_ASSIGN_OR_RETURN(second, cut(second, alone.size() - over));
      HR_ASSIGN_OR_RETURN(ids, encode(request_.first_of(pair), second));
    }
    if (ids.size() > most_) return pair_too_long(request_.second_field, pair, most_);
    if (ids.empty()) {
      return invalid_argument(fmt::format("pair {} has no tokens", pair),
                              std::string(request_.second_field));
    }
    return ids;
  }

 private:
  static constexpr int kStepsMax = 4;

  Result<std::string> cut(const std::string& text, size_t tokens) const {
    HR_ASSIGN_OR_RETURN(auto ids, tokenizer_.encode(text, {.add_special = false}));
    if (ids.size() <= tokens) return text;
    ids.resize(tokens);
    return tokenizer_.decode(ids, /*skip_special=*/false);
  }

  Result<std::vector<TokenId>> encode(const std::string& first, const std::string& second) const {
    const size_t tokens_max = request_.truncate ? EncodeOptions().tokens_max : most_;
    if (prompts_ == nullptr) {
      EncodeOptions options{.parse_special = true};
      options.tokens_max = tokens_max;
      return tokenizer_.encode(first + second, options);
    }
    const auto message = [](const char* role, const std::string& text) {
      return Json::object().set("role", role).set("content", text);
    };
    Json messages = Json::array();
    messages.push(message("query", first));
    messages.push(message("document", second));
    return prompts_->encode(messages, Json(), {.add_special = true, .tokens_max = tokens_max});
  }

  const ScoreRequest& request_;
  const ChatPromptEncoder* const prompts_;
  const Tokenizer& tokenizer_;
  const size_t most_;
};

}  // namespace

Result<std::vector<EmbeddingText>> prompt_texts(const ScoreRequest& request,
                                                const ChatPromptEncoder* prompts,
                                                const Tokenizer* tokenizer,
                                                const EmbeddingSizes& sizes,
                                                const RequestLimits& limits) {
  if (tokenizer == nullptr) {
    return invalid_argument("this model has no tokenizer, and texts are scored as such",
                            std::string(request.first_field));
  }
  HR_ASSIGN_OR_RETURN(const size_t most, text_tokens_max(request.truncate, sizes));
  const PairPrompts prompt(request, prompts, *tokenizer, most);
  std::vector<EmbeddingText> texts;
  texts.reserve(request.second.size());
  size_t tokens = 0;
  for (size_t i = 0; i < request.second.size(); ++i) {
    HR_RETURN_IF_ERROR(
        check_truncated_bytes(request.second_field, i, request.second[i].size(), limits));
    HR_ASSIGN_OR_RETURN(std::vector<TokenId> ids, prompt.ids(i));
    tokens += ids.size();
    if (tokens > kPairTokensMax) return too_many_pair_tokens(request);
    texts.push_back({.ids = std::move(ids)});
  }
  return texts;
}

Result<std::vector<EmbeddingText>> compared_texts(const ScoreRequest& request,
                                                  const Tokenizer* tokenizer,
                                                  const EmbeddingSizes& sizes,
                                                  const RequestLimits& limits) {
  std::optional<int32_t> second_truncate = request.truncate;
  const int32_t cut = request.second_tokens_max;
  const int32_t asked = request.truncate.value_or(-1);
  if (cut > 0 && cut <= sizes.length_max && (asked < 0 || cut < asked)) second_truncate = cut;
  HR_ASSIGN_OR_RETURN(auto ids, embedding_ids(embedding_of_side(request.first, request.first_field,
                                                                request.truncate),
                                              tokenizer, sizes, limits));
  HR_ASSIGN_OR_RETURN(
      auto second,
      embedding_ids(embedding_of_side(request.second, request.second_field, second_truncate),
                    tokenizer, sizes, limits));
  ids.insert(ids.end(), std::make_move_iterator(second.begin()),
             std::make_move_iterator(second.end()));
  return single_texts(std::move(ids));
}

}  // namespace headrace
