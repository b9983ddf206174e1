#include "text/tokenizer.h"

#include <algorithm>
#include <deque>

#include <fmt/core.h>

#include "text/bpe.h"
#include "text/byte_fallback.h"
#include "text/byte_level.h"
#include "text/longest_match.h"
#include "text/score_bpe.h"
#include "text/unigram.h"
#include "text/utf8.h"
#include "text/wordpiece.h"

namespace headrace {
namespace {

// Offsets are 32 bits wide in the models, and a text may grow when spaces are spelled.
constexpr size_t kTextBytesMax = size_t{1} << 29;

Result<std::unique_ptr<TokenModel>> create_model(const Vocab& vocab,
                                                 const TokenModelOptions& options) {
  switch (options.kind) {
    case TokenModelKind::kByteBpe:
    case TokenModelKind::kCharacterBpe:
      return BpeMerges::create(vocab, options);
    case TokenModelKind::kScoreBpe:
      return ScoreBpe::create(vocab);
    case TokenModelKind::kUnigram:
      return Unigram::create(vocab, options);
    case TokenModelKind::kWordPiece:
      return WordPiece::create(vocab, options);
    case TokenModelKind::kLongestMatch:
      return LongestMatch::create(vocab);
  }
  return internal_error("a token model that is not in the list");
}

// The user-defined tokens that are matched in normalised text, their own text normalised likewise.
Result<SpecialMatcher> create_normalized_matcher(const Vocab& vocab, const Normalizer& normalizer) {
  std::deque<std::string> texts;
  std::vector<SpecialMatcher::Entry> entries;
  for (const AddedToken& token : vocab.added) {
    if (!token.flags.normalized || vocab.kind(token.id) != TokenKind::kUserDefined) continue;
    const std::string_view text = vocab.tokens[static_cast<size_t>(token.id)];
    if (valid_utf8_prefix(text) != text.size()) continue;
    HR_ASSIGN_OR_RETURN(std::string normalized, normalizer.apply(text, TextPlace::kStart));
    entries.push_back({texts.emplace_back(std::move(normalized)), token.id, true, token.flags});
  }
  return SpecialMatcher::create(entries);
}

size_t invalid_prefix(std::string_view text) {
  size_t invalid = 0;
  while (invalid < text.size()) {
    const Utf8Step step = utf8_step(text.substr(invalid));
    if (step.state == Utf8State::kValid) break;
    invalid += step.length;
  }
  return invalid;
}

// Appends `text` with every occurrence of a replacement's first part replaced.
void append_replaced(std::string_view text,
                     const std::vector<std::pair<std::string, std::string>>& replacements,
                     std::string& out) {
  const size_t begin = out.size();
  out.append(text);
  for (const auto& [from, to] : replacements) {
    for (size_t at = begin; (at = out.find(from, at)) != out.npos; at += to.size()) {
      out.replace(at, from.size(), to);
    }
  }
}

// What a token's text stands for where it is no bytes.
void append_spelled_text(std::string_view text, const TokenSpelling& spelling, std::string& out) {
  const std::string& prefix = spelling.continuing_prefix;
  if (prefix.empty()) return append_replaced(text, spelling.replacements, out);
  const std::string whole =
      text.starts_with(prefix) ? std::string(text.substr(prefix.size())) : " " + std::string(text);
  append_replaced(whole, spelling.replacements, out);
}

// In bytes, as spelled.
size_t longest_token(const Vocab& vocab) {
  size_t longest = 1;
  for (const auto& token : vocab.tokens) longest = std::max(longest, token.size());
  return longest;
}

}  // namespace

// Ids so far. Where there are too many, the rest of the text is not looked at.
struct Tokenizer::TokenSink {
  std::vector<TokenId> ids;
  size_t most = 0;
  size_t token_bytes_max = 1;
  const TokenModel* model = nullptr;

  bool full() const { return ids.size() > most; }
  // Whether `piece` alone has more tokens than there may be: each stands for so many bytes at most,
  // and a byte that has a token is in one.
  void look_at(std::string_view piece) {
    if (piece.size() / token_bytes_max <= most) return;
    const auto bytes = std::count_if(piece.begin(), piece.end(), [this](char byte) {
      return model->has_byte(static_cast<uint8_t>(byte));
    });
    if (static_cast<size_t>(bytes) / token_bytes_max > most) ids.resize(most + 1);
  }
};

struct Tokenizer::Parts {
  std::unique_ptr<const Vocab> vocab;
  TokenSpelling spelling;
  Normalizer normalizer;
  PreTokenizer pre_tokenizer;
  SpecialMatcher specials, normalized_specials;
  std::unique_ptr<const TokenModel> model;
};

Result<std::unique_ptr<Tokenizer>> Tokenizer::create(Vocab given) {
  HR_RETURN_IF_ERROR(validate(given));
  auto vocab = std::make_unique<Vocab>(std::move(given));
  TokenizerRecipe recipe;
  if (vocab->recipe != nullptr) {
    recipe = *vocab->recipe;
  } else {
    HR_ASSIGN_OR_RETURN(recipe, recipe_by_name(*vocab));
  }
  HR_ASSIGN_OR_RETURN(Normalizer normalizer, Normalizer::create(recipe.normalizers));
  HR_ASSIGN_OR_RETURN(PreTokenizer pre_tokenizer, PreTokenizer::create(recipe.pre_tokenizers));
  HR_ASSIGN_OR_RETURN(SpecialMatcher specials, SpecialMatcher::create(*vocab));
  HR_ASSIGN_OR_RETURN(SpecialMatcher normalized_specials,
                      create_normalized_matcher(*vocab, normalizer));
  HR_ASSIGN_OR_RETURN(auto model, create_model(*vocab, recipe.model));
  // The model has made tables of the rules.
  vocab->merges = {};
  vocab->merge_pairs = {};
  return std::unique_ptr<Tokenizer>(
      new Tokenizer({std::move(vocab), std::move(recipe.spelling), std::move(normalizer),
                     std::move(pre_tokenizer), std::move(specials), std::move(normalized_specials),
                     std::move(model)}));
}

Tokenizer::Tokenizer(Parts parts)
    : vocab_(std::move(parts.vocab)),
      spelling_(std::move(parts.spelling)),
      normalizer_(std::move(parts.normalizer)),
      pre_tokenizer_(std::move(parts.pre_tokenizer)),
      specials_(std::move(parts.specials)),
      normalized_specials_(std::move(parts.normalized_specials)),
      model_(std::move(parts.model)),
      token_bytes_max_(longest_token(*vocab_)) {}

Tokenizer::~Tokenizer() = default;

Result<std::vector<TokenId>> Tokenizer::encode(std::string_view text, EncodeOptions options) const {
  if (text.size() > kTextBytesMax) {
    return invalid_argument(
        fmt::format("the text has {} bytes, more than {}", text.size(), kTextBytesMax));
  }
  TokenSink sink{{}, options.tokens_max, token_bytes_max_, model_.get()};
  std::vector<TokenId>& ids = sink.ids;
  if (options.add_special && vocab_->add_bos && vocab_->bos >= 0) ids.push_back(vocab_->bos);
  const auto match = options.parse_special ? SpecialMatcher::Match::kUserDefinedAndControl
                                           : SpecialMatcher::Match::kUserDefined;
  const auto place_at = [&](size_t at) {
    return at == 0 && !options.behind_token ? TextPlace::kStart : TextPlace::kBehindToken;
  };
  size_t at = 0;
  while (!sink.full()) {
    const auto special = specials_.find(text, at, match);
    if (!special) break;
    HR_RETURN_IF_ERROR(encode_between(text.substr(at, special->offset - at), place_at(at), sink));
    ids.push_back(special->id);
    at = special->offset + special->length;
  }
  HR_RETURN_IF_ERROR(encode_between(text.substr(at), place_at(at), sink));
  if (options.add_special && vocab_->add_eos && vocab_->eos >= 0) ids.push_back(vocab_->eos);
  if (sink.full()) ids.resize(options.tokens_max + 1);
  return std::move(ids);
}

// Bytes that are not UTF-8 go to the model as they are.
Status Tokenizer::encode_between(std::string_view text, TextPlace place, TokenSink& sink) const {
  while (!text.empty() && !sink.full()) {
    const size_t valid = valid_utf8_prefix(text);
    if (valid > 0) HR_RETURN_IF_ERROR(encode_valid(text.substr(0, valid), place, sink));
    text.remove_prefix(valid);
    const size_t invalid = invalid_prefix(text);
    if (invalid > 0) model_->encode(text.substr(0, invalid), sink.ids);
    text.remove_prefix(invalid);
    place = TextPlace::kBehindBytes;
  }
  return ok_status();
}

Status Tokenizer::encode_valid(std::string_view text, TextPlace place, TokenSink& sink) const {
  std::string normalized;
  if (!normalizer_.changes_nothing()) {
    HR_ASSIGN_OR_RETURN(normalized, normalizer_.apply(text, place));
    text = normalized;
  }
  size_t at = 0;
  while (!sink.full()) {
    const auto special = normalized_specials_.find(text, at, SpecialMatcher::Match::kUserDefined);
    if (!special) break;
    HR_RETURN_IF_ERROR(encode_plain(text.substr(at, special->offset - at), place, sink));
    sink.ids.push_back(special->id);
    at = special->offset + special->length;
    place = TextPlace::kBehindToken;
  }
  return encode_plain(text.substr(at), place, sink);
}

Status Tokenizer::encode_plain(std::string_view text, TextPlace place, TokenSink& sink) const {
  const Status status = pre_tokenizer_.split(text, place, [&](std::string_view piece) {
    sink.look_at(piece);
    if (sink.full()) return exhausted("enough tokens");
    model_->encode(piece, sink.ids);
    return ok_status();
  });
  return sink.full() ? ok_status() : status;
}

void Tokenizer::append_token_bytes(TokenId id, std::string& out) const {
  if (!in_vocab(id)) return;
  const std::string_view text = vocab_->tokens[static_cast<size_t>(id)];
  const TokenKind kind = vocab_->kind(id);
  const int byte = kind == TokenKind::kByte ? byte_of_spelling(text) : -1;
  if (byte >= 0) {
    out.push_back(static_cast<char>(byte));
  } else if (kind == TokenKind::kControl || kind == TokenKind::kUnknown) {
    if (!spelling_.continuing_prefix.empty()) out.push_back(' ');  // as any other word
    out.append(text);
  } else if (!spelling_.byte_letters) {
    append_spelled_text(text, spelling_, out);
  } else if (kind == TokenKind::kUserDefined) {
    out.append(text);
  } else {
    append_spelled_bytes(text, out);
  }
}

std::string Tokenizer::token_bytes(TokenId id) const {
  std::string bytes;
  append_token_bytes(id, bytes);
  return bytes;
}

std::string Tokenizer::decode(TokenSpan ids, bool skip_special) const {
  std::string bytes;
  for (TokenId id : ids) {
    if (!skip_special || !is_control(id)) append_token_bytes(id, bytes);
  }
  for (int i = 0; i < spelling_.leading_spaces && bytes.starts_with(' '); ++i) bytes.erase(0, 1);
  return bytes;
}

bool Tokenizer::is_control(TokenId id) const {
  if (!in_vocab(id)) return false;
  const TokenKind kind = vocab_->kind(id);
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown;
}

bool Tokenizer::is_end(TokenId id) const {
  return std::find(vocab_->end_ids.begin(), vocab_->end_ids.end(), id) != vocab_->end_ids.end();
}

}  // namespace headrace
