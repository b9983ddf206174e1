#include "text/wordpiece.h"

#include <fmt/core.h>

#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kWordPieceBytesMax = size_t{1} << 14;

bool is_word_piece(TokenKind kind) {
  return kind == TokenKind::kNormal || kind == TokenKind::kUserDefined ||
         kind == TokenKind::kUnused;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> WordPiece::create(const Vocab& vocab,
                                                      const TokenModelOptions& options) {
  if (vocab.unk < 0) return corrupt("there is no unknown token", "unk_token");
  size_t byte_count = options.continuing_prefix.size();
  for (const std::string_view token : vocab.tokens) {
    if (token.size() > kWordPieceBytesMax) {
      return corrupt(
          fmt::format("a token has {} bytes, more than {}", token.size(), kWordPieceBytesMax),
          "tokens");
    }
    byte_count += token.size();
  }
  return std::unique_ptr<TokenModel>(new WordPiece(vocab, options, byte_count));
}

WordPiece::WordPiece(const Vocab& vocab, const TokenModelOptions& options, size_t byte_count)
    : vocab_(vocab), options_(options), trie_(byte_count) {
  continuing_node_ = trie_.insert(options.continuing_prefix);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.tokens[id].empty() || !is_word_piece(vocab.kind(static_cast<TokenId>(id)))) continue;
    const uint32_t node = trie_.insert(vocab.tokens[id]);
    ids_.resize(trie_.node_count(), -1);
    if (ids_[node] < 0) ids_[node] = static_cast<TokenId>(id);
  }
  ids_.resize(trie_.node_count(), -1);
}

// The longest token that `rest` begins with, from `node` of the trie on.
WordPiece::Token WordPiece::longest_token(uint32_t node, std::string_view rest) const {
  Token longest;
  for (size_t at = 0; at < rest.size(); ++at) {
    node = trie_.step(node, rest[at]);
    if (node == ByteTrie::kNoNode) break;
    if (ids_[node] >= 0) longest = {ids_[node], at + 1};
  }
  return longest;
}

void WordPiece::encode(std::string_view piece, std::vector<TokenId>& out) const {
  const size_t begin = out.size();
  bool known = count_code_points(piece) <= static_cast<size_t>(options_.word_chars_max);
  for (size_t at = 0; known && at < piece.size();) {
    const uint32_t node = at == 0 ? ByteTrie::kRoot : continuing_node_;
    const Token token = longest_token(node, piece.substr(at));
    known = token.id >= 0;
    if (known) out.push_back(token.id);
    at += token.length;
  }
  if (known) return;
  out.resize(begin);
  out.push_back(vocab_.unk);
}

}  // namespace headrace
