#include "text/score_bpe.h"

#include <algorithm>
#include <bit>

#include <fmt/core.h>

#include "text/merge_symbols.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr std::string_view kSpace = "\xE2\x96\x81";  // U+2581, which spells a space

// Tokens that text may become by joining.
bool is_joinable(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnused;
}

// Characters, and parts of what is no UTF-8.
size_t count_characters(std::string_view text) {
  size_t count = 0;
  for (; !text.empty(); ++count) text.remove_prefix(utf8_step(text).length);
  return count;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> ScoreBpe::create(const Vocab& vocab) {
  if (vocab.scores.size() != vocab.tokens.size()) {
    return corrupt(
        fmt::format("{} token scores for {} tokens", vocab.scores.size(), vocab.tokens.size()),
        "scores");
  }
  return std::unique_ptr<TokenModel>(new ScoreBpe(vocab));
}

ScoreBpe::ScoreBpe(const Vocab& vocab) : vocab_(vocab), table_(vocab.tokens), bytes_(vocab) {
  for (const std::string_view token : vocab.tokens) {
    for (size_t at = 1; (at = token.find(kSpace, at)) != token.npos; at += kSpace.size()) {
      before_space_[static_cast<uint8_t>(token[at - 1])] = true;
    }
  }
  // Several spaces stay together whatever the tokens are: fewer words.
  before_space_[static_cast<uint8_t>(kSpace.back())] = true;
}

TokenId ScoreBpe::find(std::string_view text) const {
  if (text.size() > table_.text_bytes_max()) return -1;
  const TokenId id = table_.find(text);
  return id >= 0 && is_joinable(vocab_.kind(id)) ? id : -1;
}

// The higher the score the lower the rank: a float's bits in the order of its values, turned round.
uint32_t ScoreBpe::rank(TokenId id) const {
  const uint32_t bits =
      std::bit_cast<uint32_t>(static_cast<float>(vocab_.scores[static_cast<size_t>(id)]) + 0.0f);
  const uint32_t ascending = bits & 0x80000000u ? ~bits : bits | 0x80000000u;
  return std::min(~ascending, kNoMerge - 1);
}

void ScoreBpe::encode(std::string_view piece, std::vector<TokenId>& out) const {
  while (!piece.empty()) {
    const size_t length = word_length(piece);
    encode_word(piece.substr(0, length), out);
    piece.remove_prefix(length);
  }
}

// Bytes up to the first place, after the first character, over which no token goes.
size_t ScoreBpe::word_length(std::string_view text) const {
  for (size_t at = 1; (at = text.find(kSpace, at)) != text.npos; at += kSpace.size()) {
    if (!before_space_[static_cast<uint8_t>(text[at - 1])]) return at;
  }
  return text.size();
}

void ScoreBpe::encode_word(std::string_view word, std::vector<TokenId>& out) const {
  std::array<Symbol, kShortPiece> few;
  std::vector<Symbol> many;
  std::span<Symbol> symbols = few;
  if (word.size() > few.size()) {
    many.resize(count_characters(word));
    symbols = many;
  }
  size_t count = 0;
  for (size_t at = 0; at < word.size();) {
    const uint32_t length = static_cast<uint32_t>(utf8_step(word.substr(at)).length);
    symbols[count++] = {static_cast<uint32_t>(at), length, find(word.substr(at, length))};
    at += length;
  }
  const auto join = [&](const Symbol& left, const Symbol& right) {
    Symbol product{left.begin, left.length + right.length, -1};
    product.id = find(word.substr(product.begin, product.length));
    return PairMerge<Symbol>{product.id < 0 ? kNoMerge : rank(product.id), product};
  };
  const auto emit = [&](const Symbol& symbol) {
    const std::string_view text = word.substr(symbol.begin, symbol.length);
    if (symbol.id >= 0) {
      out.push_back(symbol.id);
    } else if (bytes_.has_all(text)) {
      for (const char byte : text) out.push_back(bytes_.id(static_cast<uint8_t>(byte)));
    } else if (vocab_.unk >= 0) {
      out.push_back(vocab_.unk);
    }
  };
  merge_symbols(std::span<const Symbol>(symbols.first(count)), join, emit);
}

}  // namespace headrace
