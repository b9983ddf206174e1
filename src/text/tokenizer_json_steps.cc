#include "text/tokenizer_json_steps.h"

#include <iterator>
#include <utility>

#include <fmt/core.h>

#include "text/base64.h"
#include "text/regex_syntax.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// A reader of one type of step, in a table by the type's name.
template <class Out>
struct StepRow {
  std::string_view type;
  Status (*read)(const JsonFields& step, Out& out);
};

// How deep steps of type Sequence may be nested in each other.
constexpr int kDepthMax = 8;

// Reads `step` by the table; the members of a Sequence (named `members`) in order.
template <class Out, size_t kCount>
Status read_step(const JsonFields& step, std::string_view members,
                 const StepRow<Out> (&rows)[kCount], Out& out, int depth = 0) {
  HR_ASSIGN_OR_RETURN(const std::string type, step.require_string("type"));
  for (const StepRow<Out>& row : rows) {
    if (row.type == type) return row.read(step, out);
  }
  if (type != "Sequence")
    return step.unsupported_field("", fmt::format("'{}' is not supported", type));
  if (depth == kDepthMax) return step.unsupported_field("", "sequences are nested too deeply");
  HR_ASSIGN_OR_RETURN(const Json::Array* items, step.require_array(members));
  for (size_t i = 0; i < items->size(); ++i) {
    const JsonFields item((*items)[i], fmt::format("{}.{}[{}]", step.place(), members, i));
    HR_RETURN_IF_ERROR(read_step(item, members, rows, out, depth + 1));
  }
  return ok_status();
}

// The step that the file names `key`; empty where it has none.
std::optional<JsonFields> find_step(const JsonFields& file, std::string_view key) {
  const Json* step = file.find(key);
  if (step == nullptr) return std::nullopt;
  return JsonFields(*step, std::string(key));
}

// {"String": "..."} or {"Regex": "..."}, which older files write as a plain string.
Result<PatternSource> read_pattern(const JsonFields& step) {
  const Json* pattern = step.find("pattern");
  if (pattern != nullptr && pattern->is_string()) return PatternSource{pattern->as_string(), false};
  HR_ASSIGN_OR_RETURN(const JsonFields fields, step.require_object("pattern"));
  if (fields.find("String") != nullptr) {
    HR_ASSIGN_OR_RETURN(std::string text, fields.require_string("String"));
    return PatternSource{std::move(text), false};
  }
  HR_ASSIGN_OR_RETURN(const std::string source, fields.require_string("Regex"));
  Result<std::string> translated = pcre2_from_oniguruma(source);
  if (!translated.ok()) return step.unsupported_field("pattern", translated.status().message());
  return PatternSource{*std::move(translated), true};
}

// --- Normalisers.

using Normalizers = std::vector<NormalizerStep>;

template <UnicodeForm kForm>
Status read_form(const JsonFields&, Normalizers& out) {
  out.push_back(kForm);
  return ok_status();
}

template <class Step>
Status read_plain(const JsonFields&, Normalizers& out) {
  out.push_back(Step{});
  return ok_status();
}

Status read_strip(const JsonFields& step, Normalizers& out) {
  HR_ASSIGN_OR_RETURN(const bool left, step.bool_or("strip_left", true));
  HR_ASSIGN_OR_RETURN(const bool right, step.bool_or("strip_right", true));
  out.push_back(StripSpace{left, right});
  return ok_status();
}

Status read_replace(const JsonFields& step, Normalizers& out) {
  HR_ASSIGN_OR_RETURN(PatternSource pattern, read_pattern(step));
  HR_ASSIGN_OR_RETURN(std::string content, step.require_string("content"));
  out.push_back(Replace{std::move(pattern), std::move(content)});
  return ok_status();
}

Status read_prepend(const JsonFields& step, Normalizers& out) {
  HR_ASSIGN_OR_RETURN(std::string prefix, step.require_string("prepend"));
  out.push_back(Prepend{std::move(prefix)});
  return ok_status();
}

Status read_precompiled(const JsonFields& step, Normalizers& out) {
  HR_ASSIGN_OR_RETURN(const std::string encoded, step.string_or("precompiled_charsmap", ""));
  std::optional<std::string> blob = decode_base64(encoded);
  if (!blob) return step.corrupt_field("precompiled_charsmap", "is not base64");
  out.push_back(PrecompiledCharsMap{*std::move(blob), true});
  return ok_status();
}

// Accents go where the file does not say and lower case is asked for, as BERT's own code has it.
Status read_bert_normalizer(const JsonFields& step, Normalizers& out) {
  HR_ASSIGN_OR_RETURN(const bool clean, step.bool_or("clean_text", true));
  HR_ASSIGN_OR_RETURN(const bool ideographs, step.bool_or("handle_chinese_chars", true));
  HR_ASSIGN_OR_RETURN(const bool lowercase, step.bool_or("lowercase", true));
  HR_ASSIGN_OR_RETURN(const bool strip, step.bool_or("strip_accents", lowercase));
  if (clean) out.push_back(CleanText{});
  if (ideographs) out.push_back(SpaceIdeographs{});
  if (strip) out.push_back(UnicodeForm::kNfd);
  if (strip) out.push_back(StripNonspacingMarks{});
  if (lowercase) out.push_back(Lowercase{});
  return ok_status();
}

constexpr StepRow<Normalizers> kNormalizers[] = {
    {"NFC", read_form<UnicodeForm::kNfc>},
    {"NFD", read_form<UnicodeForm::kNfd>},
    {"NFKC", read_form<UnicodeForm::kNfkc>},
    {"NFKD", read_form<UnicodeForm::kNfkd>},
    {"Lowercase", read_plain<Lowercase>},
    {"StripAccents", read_plain<StripAccents>},
    {"Strip", read_strip},
    {"Replace", read_replace},
    {"Prepend", read_prepend},
    {"Precompiled", read_precompiled},
    {"BertNormalizer", read_bert_normalizer},
};

// --- Pre-tokenizers.

struct PreTokenizers {
  std::vector<PreTokenizerStep> steps;
  bool byte_letters = false;  // ByteLevel was read
};

Result<SplitBehavior> read_behavior(const JsonFields& step) {
  constexpr std::pair<std::string_view, SplitBehavior> kBehaviors[] = {
      {"Isolated", SplitBehavior::kIsolated},
      {"Removed", SplitBehavior::kRemoved},
      {"MergedWithPrevious", SplitBehavior::kMergedWithPrevious},
      {"MergedWithNext", SplitBehavior::kMergedWithNext},
      {"Contiguous", SplitBehavior::kContiguous},
  };
  HR_ASSIGN_OR_RETURN(const std::string name, step.string_or("behavior", "Isolated"));
  for (const auto& [known, behavior] : kBehaviors) {
    if (name == known) return behavior;
  }
  return step.unsupported_field("behavior", fmt::format("'{}' is not supported", name));
}

Status read_split(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(PatternSource pattern, read_pattern(step));
  HR_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(step));
  HR_ASSIGN_OR_RETURN(const bool invert, step.bool_or("invert", false));
  out.steps.push_back(Split{std::move(pattern), behavior, invert});
  return ok_status();
}

// Bytes become letters here, which no later step could cut as text.
Status read_byte_level(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(const bool prefix, step.bool_or("add_prefix_space", true));
  HR_ASSIGN_OR_RETURN(const bool regex, step.bool_or("use_regex", true));
  if (prefix) out.steps.push_back(PrefixSpace{});
  if (regex) out.steps.push_back(Split{.pattern = {std::string(gpt2_pattern()), true}});
  out.byte_letters = true;
  return ok_status();
}

// The scheme, which older files give as a boolean.
Result<PrependScheme> read_prepend_scheme(const JsonFields& step) {
  HR_ASSIGN_OR_RETURN(const bool old, step.bool_or("add_prefix_space", true));
  HR_ASSIGN_OR_RETURN(const std::string name,
                      step.string_or("prepend_scheme", old ? "always" : "never"));
  if (name == "always") return PrependScheme::kAlways;
  if (name == "first") return PrependScheme::kFirst;
  if (name == "never") return PrependScheme::kNever;
  return step.unsupported_field("prepend_scheme", fmt::format("'{}' is not supported", name));
}

Result<std::string> read_replacement(const JsonFields& step) {
  HR_ASSIGN_OR_RETURN(std::string letter, step.require_string("replacement"));
  if (count_code_points(letter) != 1) {
    return step.corrupt_field("replacement", "is not one character");
  }
  return letter;
}

Status read_metaspace(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(std::string letter, read_replacement(step));
  HR_ASSIGN_OR_RETURN(const PrependScheme scheme, read_prepend_scheme(step));
  HR_ASSIGN_OR_RETURN(const bool split, step.bool_or("split", true));
  out.steps.push_back(SpaceSpelling{std::move(letter), scheme, split});
  return ok_status();
}

Status read_digits(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(const bool individual, step.bool_or("individual_digits", false));
  out.steps.push_back(
      Split{{"\\p{N}", true}, individual ? SplitBehavior::kIsolated : SplitBehavior::kContiguous});
  return ok_status();
}

Status read_punctuation(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(const SplitBehavior behavior, read_behavior(step));
  out.steps.push_back(Split{{std::string(punctuation_pattern()), true}, behavior});
  return ok_status();
}

Status push_removed(std::string_view pattern, bool invert, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(std::string translated, pcre2_from_oniguruma(pattern));
  out.steps.push_back(Split{{std::move(translated), true}, SplitBehavior::kRemoved, invert});
  return ok_status();
}

Status read_whitespace(const JsonFields&, PreTokenizers& out) {
  return push_removed("[\\w\\x{200c}\\x{200d}]+|[^\\w\\s\\x{200c}\\x{200d}]+", true, out);
}

Status read_whitespace_split(const JsonFields&, PreTokenizers& out) {
  return push_removed("\\s", false, out);
}

Status read_bert(const JsonFields&, PreTokenizers& out) {
  for (PreTokenizerStep& step : bert_pre_tokenizers()) out.steps.push_back(std::move(step));
  return ok_status();
}

Status read_char_delimiter(const JsonFields& step, PreTokenizers& out) {
  HR_ASSIGN_OR_RETURN(std::string delimiter, step.require_string("delimiter"));
  out.steps.push_back(Split{{std::move(delimiter), false}, SplitBehavior::kRemoved});
  return ok_status();
}

constexpr std::string_view kByteDigit = "[0-9]";

// A step behind ByteLevel would cut letters that stand for bytes.
template <Status (*kRead)(const JsonFields&, PreTokenizers&)>
Status before_byte_level(const JsonFields& step, PreTokenizers& out) {
  if (out.byte_letters) return step.unsupported_field("", "a step behind ByteLevel");
  return kRead(step, out);
}

// Digits behind ByteLevel (Falcon's) are letters of bytes of class N: 0 to 9, and some letters of
// bytes within characters. A vocabulary that was made with such a step has no token across its
// cuts, so that those within characters change nothing, and those at digits are made of the text.
Status read_digits_anywhere(const JsonFields& step, PreTokenizers& out) {
  HR_RETURN_IF_ERROR(read_digits(step, out));
  if (out.byte_letters) std::get<Split>(out.steps.back()).pattern = {std::string(kByteDigit), true};
  return ok_status();
}

// Of a pattern of digits alone, which are the same as letters of bytes.
Status read_split_anywhere(const JsonFields& step, PreTokenizers& out) {
  HR_RETURN_IF_ERROR(read_split(step, out));
  std::string_view rest = std::get<Split>(out.steps.back()).pattern.text;
  while (rest.starts_with(kByteDigit)) rest.remove_prefix(kByteDigit.size());
  if (!out.byte_letters || rest.empty()) return ok_status();
  return step.unsupported_field("", "a step behind ByteLevel");
}

constexpr StepRow<PreTokenizers> kPreTokenizers[] = {
    {"ByteLevel", before_byte_level<read_byte_level>},
    {"Split", read_split_anywhere},
    {"Metaspace", before_byte_level<read_metaspace>},
    {"Digits", read_digits_anywhere},
    {"Punctuation", before_byte_level<read_punctuation>},
    {"Whitespace", before_byte_level<read_whitespace>},
    {"WhitespaceSplit", before_byte_level<read_whitespace_split>},
    {"BertPreTokenizer", before_byte_level<read_bert>},
    {"CharDelimiterSplit", before_byte_level<read_char_delimiter>},
};

// --- Decoders.

struct Decoder {
  TokenSpelling spelling;
  bool fused = false;  // what follows sees the whole text
};

Status decode_byte_level(const JsonFields&, Decoder& out) {
  out.spelling.byte_letters = true;
  return ok_status();
}

Status decode_metaspace(const JsonFields& step, Decoder& out) {
  HR_ASSIGN_OR_RETURN(std::string letter, read_replacement(step));
  HR_ASSIGN_OR_RETURN(const PrependScheme scheme, read_prepend_scheme(step));
  out.spelling.replacements.emplace_back(std::move(letter), " ");
  if (scheme != PrependScheme::kNever) out.spelling.leading_spaces = 1;
  return ok_status();
}

Status decode_replace(const JsonFields& step, Decoder& out) {
  HR_ASSIGN_OR_RETURN(PatternSource pattern, read_pattern(step));
  HR_ASSIGN_OR_RETURN(std::string content, step.require_string("content"));
  if (pattern.is_regex || pattern.text.empty()) {
    return step.unsupported_field("pattern", "a decoder replaces literal texts only");
  }
  if (out.spelling.replacements.size() == 16) {
    return step.unsupported_field("", "more than 16 replacements");
  }
  out.spelling.replacements.emplace_back(std::move(pattern.text), std::move(content));
  return ok_status();
}

// The byte tokens' kind says it already.
Status decode_byte_fallback(const JsonFields&, Decoder&) { return ok_status(); }

Status decode_fuse(const JsonFields&, Decoder& out) {
  out.fused = true;
  return ok_status();
}

Status decode_strip(const JsonFields& step, Decoder& out) {
  HR_ASSIGN_OR_RETURN(const std::string content, step.string_or("content", " "));
  HR_ASSIGN_OR_RETURN(const int64_t start, step.int_or("start", 0));
  HR_ASSIGN_OR_RETURN(const int64_t stop, step.int_or("stop", 0));
  if (!out.fused || content != " " || start < 0 || start > 16 || stop != 0) {
    return step.unsupported_field("", "Strip takes spaces from the start of the fused text only");
  }
  out.spelling.leading_spaces = static_cast<int>(start);
  return ok_status();
}

// What a token loses where its text looks like a word of English with a space too many.
constexpr std::pair<std::string_view, std::string_view> kCleanups[] = {
    {" .", "."},   {" ?", "?"},     {" !", "!"},    {" ,", ","},
    {" ' ", "'"},  {" n't", "n't"}, {" 'm", "'m"},  {" do not", " don't"},
    {" 's", "'s"}, {" 've", "'ve"}, {" 're", "'re"}};

Status decode_wordpiece(const JsonFields& step, Decoder& out) {
  HR_ASSIGN_OR_RETURN(out.spelling.continuing_prefix, step.string_or("prefix", "##"));
  HR_ASSIGN_OR_RETURN(const bool cleanup, step.bool_or("cleanup", true));
  if (out.spelling.continuing_prefix.empty()) {
    return step.unsupported_field("prefix", "is an empty text");
  }
  for (const auto& [from, to] : kCleanups) {
    if (cleanup) out.spelling.replacements.emplace_back(from, to);
  }
  out.spelling.leading_spaces = 1;
  return ok_status();
}

constexpr StepRow<Decoder> kDecoders[] = {
    {"ByteLevel", decode_byte_level},
    {"Metaspace", decode_metaspace},
    {"Replace", decode_replace},
    {"ByteFallback", decode_byte_fallback},
    {"Fuse", decode_fuse},
    {"Strip", decode_strip},
    {"WordPiece", decode_wordpiece},
};

// --- Post-processors.

Result<TokenId> read_token_id(const JsonFields& step, std::string_view key, const Json& id) {
  if (!id.is_int() || id.as_int() < 0 || id.as_int() > INT32_MAX) {
    return step.corrupt_field(key, "is no token id");
  }
  return static_cast<TokenId>(id.as_int());
}

// Offsets only.
Status frame_byte_level(const JsonFields&, TextFrame&) { return ok_status(); }

// The one id of a special token that a template names.
Result<TokenId> template_token_id(const JsonFields& step, const JsonFields& item) {
  HR_ASSIGN_OR_RETURN(const std::string name, item.require_string("id"));
  HR_ASSIGN_OR_RETURN(const JsonFields tokens, step.require_object("special_tokens"));
  HR_ASSIGN_OR_RETURN(const JsonFields token, tokens.require_object(name));
  HR_ASSIGN_OR_RETURN(const Json::Array* ids, token.require_array("ids"));
  if (ids->size() != 1) return token.unsupported_field("ids", "is not one id");
  return read_token_id(token, "ids", ids->front());
}

// Of "pair": tokens, the first text, tokens, the second text, tokens; from the second text on all
// have one type. Others are nothing that a cross-encoder here was made with: empty.
std::optional<PairFrame> pair_of_template(const JsonFields& step) {
  const Json* elements = step.find("pair");
  if (elements == nullptr || !elements->is_array()) return std::nullopt;
  PairFrame pair;
  std::vector<TokenId>* const places[] = {&pair.front, &pair.middle, &pair.back};
  size_t texts = 0;
  std::optional<int64_t> second_type;
  for (const Json& element : elements->as_array()) {
    if (!element.is_object() || element.as_object().size() != 1) return std::nullopt;
    const auto& [kind, value] = element.as_object().front();
    const Json* const name = value.is_object() ? value.find("id") : nullptr;
    const Json* const type = value.is_object() ? value.find("type_id") : nullptr;
    if (name == nullptr || type == nullptr || !type->is_int()) return std::nullopt;
    if (kind == "Sequence") {
      if (texts == 2 || *name != Json(texts == 0 ? "A" : "B")) return std::nullopt;
      ++texts;
    } else {
      const auto id = template_token_id(step, JsonFields(value, step.place() + ".pair"));
      if (!id.ok()) return std::nullopt;
      places[texts]->push_back(*id);
    }
    if (texts < 2 && *type != Json(0)) return std::nullopt;
    if (texts == 2 && second_type.value_or(type->as_int()) != type->as_int()) return std::nullopt;
    if (texts == 2) second_type = type->as_int();
  }
  if (texts != 2 || (*second_type != 0 && *second_type != 1)) return std::nullopt;
  pair.second_type = *second_type == 1;
  return pair;
}

// At most one token in front of the text and one behind it.
Status frame_template(const JsonFields& step, TextFrame& out) {
  HR_ASSIGN_OR_RETURN(const Json::Array* single, step.require_array("single"));
  out.pair = pair_of_template(step);
  bool behind_text = false;
  for (const Json& element : *single) {
    const JsonFields item(element, step.place() + ".single");
    if (item.find("Sequence") != nullptr) {
      if (behind_text) return item.unsupported_field("", "the text twice");
      behind_text = true;
      continue;
    }
    HR_ASSIGN_OR_RETURN(const JsonFields token, item.require_object("SpecialToken"));
    HR_ASSIGN_OR_RETURN(const TokenId id, template_token_id(step, token));
    std::optional<TokenId>& place = behind_text ? out.back : out.front;
    if (place)
      return item.unsupported_field("", "more than one special token on a side of the text");
    place = id;
  }
  return ok_status();
}

// ["text", id]
Result<TokenId> read_pair_id(const JsonFields& step, std::string_view key) {
  HR_ASSIGN_OR_RETURN(const Json::Array* pair, step.require_array(key));
  if (pair->size() != 2) return step.corrupt_field(key, "is not a token and its id");
  return read_token_id(step, key, (*pair)[1]);
}

Status frame_bert(const JsonFields& step, TextFrame& out) {
  HR_ASSIGN_OR_RETURN(const TokenId cls, read_pair_id(step, "cls"));
  HR_ASSIGN_OR_RETURN(const TokenId sep, read_pair_id(step, "sep"));
  out = {.front = cls,
         .back = sep,
         .pair = PairFrame{.front = {cls}, .middle = {sep}, .back = {sep}, .second_type = true}};
  return ok_status();
}

Status frame_roberta(const JsonFields& step, TextFrame& out) {
  HR_RETURN_IF_ERROR(frame_bert(step, out));
  out.pair->middle.push_back(*out.back);
  out.pair->second_type = false;
  return ok_status();
}

constexpr StepRow<TextFrame> kPostProcessors[] = {
    {"ByteLevel", frame_byte_level},
    {"TemplateProcessing", frame_template},
    {"BertProcessing", frame_bert},
    {"RobertaProcessing", frame_roberta},
};

}  // namespace

Status read_normalizer(const JsonFields& file, TokenizerRecipe& recipe) {
  const auto step = find_step(file, "normalizer");
  return step ? read_step(*step, "normalizers", kNormalizers, recipe.normalizers) : ok_status();
}

Status read_pre_tokenizer(const JsonFields& file, TokenizerRecipe& recipe) {
  const auto step = find_step(file, "pre_tokenizer");
  if (!step) return ok_status();
  PreTokenizers read;
  HR_RETURN_IF_ERROR(read_step(*step, "pretokenizers", kPreTokenizers, read));
  recipe.pre_tokenizers = std::move(read.steps);
  if (read.byte_letters) recipe.model.kind = TokenModelKind::kByteBpe;
  return ok_status();
}

Status read_decoder(const JsonFields& file, TokenizerRecipe& recipe) {
  const auto step = find_step(file, "decoder");
  if (!step) return ok_status();
  Decoder read;
  HR_RETURN_IF_ERROR(read_step(*step, "decoders", kDecoders, read));
  recipe.spelling = std::move(read.spelling);
  return ok_status();
}

Result<TextFrame> read_post_processor(const JsonFields& file) {
  TextFrame frame;
  const auto step = find_step(file, "post_processor");
  if (step) HR_RETURN_IF_ERROR(read_step(*step, "processors", kPostProcessors, frame));
  return frame;
}

}  // namespace headrace
