#include "text/tokenizer_json.h"

#include <algorithm>
#include <iterator>
#include <optional>
#include <string>
#include <utility>

#include <fmt/core.h>

#include "text/byte_fallback.h"
#include "text/json_fields.h"
#include "text/tokenizer_json_steps.h"

namespace headrace {
namespace {

// The largest published files have 2^18 tokens and twice as many merges.
constexpr JsonLimits kLimits{
    .depth_max = 64, .key_count_max = size_t{1} << 22, .element_count_max = size_t{1} << 24};
constexpr size_t kFileBytesMax = size_t{1} << 28;

// How many ids without a token a vocabulary may have (files pad to round sizes).
constexpr size_t kHolesMax = size_t{1} << 16;

// Texts of tokens and merges, in one block of memory that the vocabulary's views point into.
class TextArena {
 public:
  explicit TextArena(size_t byte_count) { bytes_->reserve(byte_count); }

  // REQUIRES: no more bytes in all than the constructor was told
  std::string_view add(std::string_view text) {
    CHECK(bytes_->capacity() - bytes_->size() >= text.size());
    const size_t begin = bytes_->size();
    bytes_->append(text);
    return std::string_view(*bytes_).substr(begin, text.size());
  }
  std::shared_ptr<const void> share() const { return bytes_; }

 private:
  std::shared_ptr<std::string> bytes_ = std::make_shared<std::string>();
};

struct Entry {
  std::string_view text;
  int64_t id;
  double score;
};

// --- The model's own vocabulary, as views into the file's JSON.

Result<std::vector<Entry>> read_bpe_vocab(const JsonFields& model) {
  HR_ASSIGN_OR_RETURN(const JsonFields vocab, model.require_object("vocab"));
  std::vector<Entry> entries;
  entries.reserve(vocab.json().as_object().size());
  for (const auto& [text, id] : vocab.json().as_object()) {
    if (!id.is_int()) return vocab.corrupt_field("", "an id is no integer");
    entries.push_back({text, id.as_int(), 0});
  }
  return entries;
}

Result<std::vector<Entry>> read_unigram_vocab(const JsonFields& model) {
  HR_ASSIGN_OR_RETURN(const Json::Array* vocab, model.require_array("vocab"));
  std::vector<Entry> entries;
  entries.reserve(vocab->size());
  for (const Json& pair : *vocab) {
    const bool whole = pair.is_array() && pair.as_array().size() == 2 &&
                       pair.as_array()[0].is_string() && pair.as_array()[1].is_number();
    if (!whole) {
      return model.corrupt_field("vocab",
                                 fmt::format("entry {} is no text with a score", entries.size()));
    }
    entries.push_back({pair.as_array()[0].as_string(), static_cast<int64_t>(entries.size()),
                       pair.as_array()[1].as_double()});
  }
  return entries;
}

// --- added_tokens.

struct Added {
  Entry entry;
  bool special;
  AddedTokenFlags flags;
};

Result<std::vector<Added>> read_added(const JsonFields& file) {
  std::vector<Added> tokens;
  if (file.find("added_tokens") == nullptr) return tokens;
  HR_ASSIGN_OR_RETURN(const Json::Array* items, file.require_array("added_tokens"));
  for (size_t i = 0; i < items->size(); ++i) {
    const JsonFields item((*items)[i], fmt::format("added_tokens[{}]", i));
    const Json* content = item.find("content");
    if (content == nullptr || !content->is_string()) {
      return item.corrupt_field("content", "is no string");
    }
    Added added{};
    HR_ASSIGN_OR_RETURN(const int64_t id, item.int_or("id", -1));
    added.entry = {content->as_string(), id, 0};
    HR_ASSIGN_OR_RETURN(added.special, item.bool_or("special", false));
    HR_ASSIGN_OR_RETURN(added.flags.lstrip, item.bool_or("lstrip", false));
    HR_ASSIGN_OR_RETURN(added.flags.rstrip, item.bool_or("rstrip", false));
    HR_ASSIGN_OR_RETURN(added.flags.single_word, item.bool_or("single_word", false));
    HR_ASSIGN_OR_RETURN(added.flags.normalized, item.bool_or("normalized", !added.special));
    tokens.push_back(added);
  }
  std::stable_sort(tokens.begin(), tokens.end(),
                   [](const Added& a, const Added& b) { return a.entry.id < b.entry.id; });
  return tokens;
}

// --- Putting both together.

Status check_ids(const JsonFields& file, const std::vector<Entry>& entries,
                 const std::vector<Added>& added) {
  const int64_t end = static_cast<int64_t>(entries.size() + added.size() + kHolesMax);
  const auto fits = [&](const Entry& entry) { return entry.id >= 0 && entry.id < end; };
  for (const Entry& entry : entries) {
    if (!fits(entry)) return file.corrupt_field("model.vocab", fmt::format("id {}", entry.id));
  }
  for (const Added& token : added) {
    if (!fits(token.entry)) {
      return file.corrupt_field("added_tokens", fmt::format("id {}", token.entry.id));
    }
  }
  return ok_status();
}

size_t id_end(const std::vector<Entry>& entries, const std::vector<Added>& added) {
  int64_t last = -1;
  for (const Entry& entry : entries) last = std::max(last, entry.id);
  for (const Added& token : added) last = std::max(last, token.entry.id);
  return static_cast<size_t>(last + 1);
}

// Places `entry` at its id, which must be free or hold the same text.
Status place(const JsonFields& file, const Entry& entry, TextArena& arena, Vocab& vocab) {
  const size_t id = static_cast<size_t>(entry.id);
  if (vocab.tokens[id].data() != nullptr) {
    if (vocab.tokens[id] == entry.text) return ok_status();
    return file.corrupt_field("added_tokens", fmt::format("id {} is two tokens", id));
  }
  vocab.tokens[id] = arena.add(entry.text);
  vocab.kinds[id] = TokenKind::kNormal;
  if (!vocab.scores.empty()) vocab.scores[id] = entry.score;
  return ok_status();
}

Status fill_tokens(const JsonFields& file, const std::vector<Entry>& entries,
                   const std::vector<Added>& added, bool has_scores, TextArena& arena,
                   Vocab& vocab) {
  HR_RETURN_IF_ERROR(check_ids(file, entries, added));
  const size_t count = id_end(entries, added);
  vocab.tokens.resize(count);
  vocab.kinds.assign(count, TokenKind::kUnused);
  if (has_scores) vocab.scores.assign(count, 0);
  for (const Entry& entry : entries) HR_RETURN_IF_ERROR(place(file, entry, arena, vocab));
  for (const Added& token : added) {
    HR_RETURN_IF_ERROR(place(file, token.entry, arena, vocab));
    const TokenId id = static_cast<TokenId>(token.entry.id);
    vocab.kinds[static_cast<size_t>(id)] =
        token.special ? TokenKind::kControl : TokenKind::kUserDefined;
    vocab.added.push_back({id, token.flags});
  }
  return ok_status();
}

void mark_byte_tokens(Vocab& vocab) {
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const bool normal = vocab.kinds[id] == TokenKind::kNormal;
    if (normal && byte_of_spelling(vocab.tokens[id]) >= 0) vocab.kinds[id] = TokenKind::kByte;
  }
}

// --- Merges: "left right", or ["left", "right"] in newer files.

Status read_merges(const JsonFields& model, TextArena& arena, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(const Json::Array* merges, model.require_array("merges"));
  const bool pairs = !merges->empty() && merges->front().is_array();
  vocab.merge_pairs.reserve(pairs ? merges->size() : 0);
  vocab.merges.reserve(pairs ? 0 : merges->size());
  for (size_t i = 0; i < merges->size(); ++i) {
    const Json& merge = (*merges)[i];
    if (!pairs && merge.is_string()) {
      vocab.merges.push_back(arena.add(merge.as_string()));
      continue;
    }
    const bool whole = pairs && merge.is_array() && merge.as_array().size() == 2 &&
                       merge.as_array()[0].is_string() && merge.as_array()[1].is_string();
    if (!whole) return model.corrupt_field("merges", fmt::format("entry {} is no pair", i));
    vocab.merge_pairs.emplace_back(arena.add(merge.as_array()[0].as_string()),
                                   arena.add(merge.as_array()[1].as_string()));
  }
  return ok_status();
}

size_t text_bytes(const Json& value) {
  if (value.is_string()) return value.as_string().size();
  size_t sum = 0;
  if (value.is_array()) {
    for (const Json& item : value.as_array()) sum += text_bytes(item);
  }
  return sum;
}

// --- Models.

// The id of the token that spells `text`, or -1.
TokenId find_token(const Vocab& vocab, std::string_view text) {
  const auto found = std::find(vocab.tokens.begin(), vocab.tokens.end(), text);
  const bool known = !text.empty() && found != vocab.tokens.end();
  return known ? static_cast<TokenId>(found - vocab.tokens.begin()) : -1;
}

Status read_bpe_options(const JsonFields& model, TokenizerRecipe& recipe, Vocab& vocab) {
  for (const std::string_view key : {"continuing_subword_prefix", "end_of_word_suffix"}) {
    HR_ASSIGN_OR_RETURN(const std::string text, model.string_or(key, ""));
    if (!text.empty())
      return model.unsupported_field(key, fmt::format("'{}' is not supported", text));
  }
  if (const Json* dropout = model.find("dropout")) {
    const bool none = dropout->is_number() && dropout->as_double() == 0;
    if (!none) return model.unsupported_field("dropout", "merging at random is not supported");
  }
  HR_ASSIGN_OR_RETURN(recipe.model.ignore_merges, model.bool_or("ignore_merges", false));
  HR_ASSIGN_OR_RETURN(recipe.model.byte_fallback, model.bool_or("byte_fallback", false));
  HR_ASSIGN_OR_RETURN(recipe.model.fuse_unk, model.bool_or("fuse_unk", false));
  HR_ASSIGN_OR_RETURN(const std::string unk, model.string_or("unk_token", ""));
  vocab.unk = find_token(vocab, unk);
  recipe.model.use_unk = vocab.unk >= 0;
  return ok_status();
}

Status read_unigram_options(const JsonFields& model, TokenizerRecipe& recipe, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(recipe.model.byte_fallback, model.bool_or("byte_fallback", false));
  HR_ASSIGN_OR_RETURN(const int64_t unk, model.int_or("unk_id", -1));
  if (unk < -1 || unk >= static_cast<int64_t>(vocab.tokens.size())) {
    return model.corrupt_field("unk_id", fmt::format("{} is no id of the vocabulary", unk));
  }
  vocab.unk = static_cast<TokenId>(unk);
  recipe.model.use_unk = unk >= 0;
  recipe.model.fuse_unk = true;
  return ok_status();
}

Status read_wordpiece_options(const JsonFields& model, TokenizerRecipe& recipe, Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(recipe.model.continuing_prefix,
                      model.string_or("continuing_subword_prefix", "##"));
  HR_ASSIGN_OR_RETURN(const int64_t chars, model.int_or("max_input_chars_per_word", 100));
  if (chars < 0 || chars > INT32_MAX) {
    return model.corrupt_field("max_input_chars_per_word", fmt::format("is {}", chars));
  }
  recipe.model.word_chars_max = static_cast<int32_t>(chars);
  HR_ASSIGN_OR_RETURN(const std::string unk, model.string_or("unk_token", "[UNK]"));
  vocab.unk = find_token(vocab, unk);
  recipe.model.use_unk = vocab.unk >= 0;
  return ok_status();
}

// The model's type; files of before 2020 have none for BPE.
Result<std::string> model_type(const JsonFields& model) {
  HR_ASSIGN_OR_RETURN(std::string type, model.string_or("type", ""));
  if (!type.empty()) return type;
  return std::string(model.find("merges") != nullptr ? "BPE" : "");
}

Status read_model(const JsonFields& file, const std::vector<Added>& added, TokenizerRecipe& recipe,
                  Vocab& vocab) {
  HR_ASSIGN_OR_RETURN(const JsonFields model, file.require_object("model"));
  HR_ASSIGN_OR_RETURN(vocab.model, model_type(model));
  const bool bpe = vocab.model == "BPE", unigram = vocab.model == "Unigram";
  const bool wordpiece = vocab.model == "WordPiece";
  if (!bpe && !unigram && !wordpiece) {
    return model.unsupported_field(
        "type", fmt::format("'{}' is not supported (known: BPE, Unigram, WordPiece)", vocab.model));
  }
  const bool byte_letters = recipe.model.kind == TokenModelKind::kByteBpe;
  if (!bpe && byte_letters) {
    return model.unsupported_field("type", vocab.model + " with ByteLevel");
  }
  if (unigram) recipe.model.kind = TokenModelKind::kUnigram;
  if (wordpiece) recipe.model.kind = TokenModelKind::kWordPiece;
  HR_ASSIGN_OR_RETURN(const std::vector<Entry> entries,
                      unigram ? read_unigram_vocab(model) : read_bpe_vocab(model));
  size_t bytes = model.find("merges") == nullptr ? 0 : text_bytes(*model.find("merges"));
  for (const Entry& entry : entries) bytes += entry.text.size();
  for (const Added& token : added) bytes += token.entry.text.size();
  TextArena arena(bytes);
  vocab.storage = arena.share();
  HR_RETURN_IF_ERROR(fill_tokens(file, entries, added, unigram, arena, vocab));
  HR_RETURN_IF_ERROR(bpe ? read_merges(model, arena, vocab) : ok_status());
  HR_RETURN_IF_ERROR(unigram ? read_unigram_options(model, recipe, vocab)
                     : bpe   ? read_bpe_options(model, recipe, vocab)
                             : read_wordpiece_options(model, recipe, vocab));
  if (recipe.model.byte_fallback) mark_byte_tokens(vocab);
  return ok_status();
}

// --- The files beside tokenizer.json.

// A special token's text: a string, or an object with its "content".
std::string token_text(const Json* token) {
  if (token != nullptr && token->is_object()) token = token->find("content");
  return token != nullptr && token->is_string() ? token->as_string() : std::string();
}

void read_named_tokens(const JsonFields& file, Vocab& vocab) {
  const std::pair<std::string_view, TokenId*> names[] = {{"bos_token", &vocab.bos},
                                                         {"eos_token", &vocab.eos},
                                                         {"unk_token", &vocab.unk},
                                                         {"pad_token", &vocab.pad}};
  for (const auto& [key, id] : names) {
    if (*id < 0) *id = find_token(vocab, token_text(file.find(key)));
  }
}

// A template, or several with names of which "default" is taken.
std::string chat_template_of(const JsonFields& config) {
  const Json* value = config.find("chat_template");
  if (value == nullptr) return {};
  if (value->is_string()) return value->as_string();
  if (!value->is_array()) return {};
  for (const Json& item : value->as_array()) {
    const Json* name = item.find("name");
    const Json* text = item.find("template");
    const bool is_default = name != nullptr && name->is_string() && name->as_string() == "default";
    if (is_default && text != nullptr && text->is_string()) return text->as_string();
  }
  return {};
}

// Classes whose add_bos_token and add_eos_token replace what the post-processor says.
constexpr std::string_view kFrameClasses[] = {"LlamaTokenizer", "CodeLlamaTokenizer",
                                              "GemmaTokenizer"};

Status read_frame_flags(const JsonFields& config, Vocab& vocab) {
  const std::string name = token_text(config.find("tokenizer_class"));
  const bool decides = std::any_of(std::begin(kFrameClasses), std::end(kFrameClasses),
                                   [&](std::string_view known) { return name.starts_with(known); });
  if (!decides) return ok_status();
  HR_ASSIGN_OR_RETURN(vocab.add_bos, config.bool_or("add_bos_token", vocab.add_bos));
  HR_ASSIGN_OR_RETURN(vocab.add_eos, config.bool_or("add_eos_token", vocab.add_eos));
  return ok_status();
}

// The id that goes on one side of a text is the one that the other files name, if they name one.
Status read_frame_id(const JsonFields& file, std::optional<TokenId> id, TokenId& named, bool& add) {
  if (!id) return ok_status();
  if (named >= 0 && named != *id) {
    return file.unsupported_field(
        "post_processor",
        fmt::format("adds token {} where the configuration names {}", *id, named));
  }
  named = *id;
  add = true;
  return ok_status();
}

Result<Json> parse_file(std::string_view text, std::string_view name) {
  if (text.empty()) return Json::object();
  if (text.size() > kFileBytesMax) {
    return corrupt(fmt::format("{}: has {} bytes, more than {}", name, text.size(), kFileBytesMax));
  }
  Result<Json> json = parse_json(text, kLimits);
  if (!json.ok()) return corrupt(fmt::format("{}: {}", name, json.status().message()));
  if (!json->is_object()) return corrupt(fmt::format("{}: is no object", name));
  return json;
}

Result<Vocab> read_files(const JsonFields& file, const JsonFields& config,
                         const JsonFields& special_tokens) {
  Vocab vocab;
  TokenizerRecipe recipe;
  recipe.model.kind = TokenModelKind::kCharacterBpe;
  HR_RETURN_IF_ERROR(read_normalizer(file, recipe));
  HR_RETURN_IF_ERROR(read_pre_tokenizer(file, recipe));
  HR_RETURN_IF_ERROR(read_decoder(file, recipe));
  HR_ASSIGN_OR_RETURN(const std::vector<Added> added, read_added(file));
  HR_RETURN_IF_ERROR(read_model(file, added, recipe, vocab));
  read_named_tokens(config, vocab);
  read_named_tokens(special_tokens, vocab);
  HR_ASSIGN_OR_RETURN(const TextFrame frame, read_post_processor(file));
  HR_RETURN_IF_ERROR(read_frame_id(file, frame.front, vocab.bos, vocab.add_bos));
  HR_RETURN_IF_ERROR(read_frame_id(file, frame.back, vocab.eos, vocab.add_eos));
  HR_RETURN_IF_ERROR(read_frame_flags(config, vocab));
  vocab.pair = frame.pair;
  vocab.chat_template = chat_template_of(config);
  vocab.recipe = std::make_shared<const TokenizerRecipe>(std::move(recipe));
  add_known_end_ids(vocab);
  HR_RETURN_IF_ERROR(validate(vocab));
  return vocab;
}

}  // namespace

Result<Vocab> vocab_from_tokenizer_json(const TokenizerFiles& files) {
  HR_ASSIGN_OR_RETURN(const Json file, parse_file(files.tokenizer, "tokenizer.json"));
  HR_ASSIGN_OR_RETURN(const Json config,
                      parse_file(files.tokenizer_config, "tokenizer_config.json"));
  HR_ASSIGN_OR_RETURN(const Json special_tokens,
                      parse_file(files.special_tokens_map, "special_tokens_map.json"));
  Result<Vocab> vocab =
      read_files(JsonFields(file, ""), JsonFields(config, ""), JsonFields(special_tokens, ""));
  if (!vocab.ok()) return vocab.status().with_context("tokenizer.json");
  return vocab;
}

}  // namespace headrace
