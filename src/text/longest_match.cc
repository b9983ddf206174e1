#include "text/longest_match.h"

#include <fmt/core.h>

namespace headrace {
namespace {

size_t bytes_of_tokens(const Vocab& vocab) {
  size_t bytes = 0;
  for (const std::string_view token : vocab.tokens) bytes += token.size();
  return bytes;
}

}  // namespace

Result<std::unique_ptr<TokenModel>> LongestMatch::create(const Vocab& vocab) {
  constexpr size_t kBytesMax = size_t{1} << 14;
  for (const std::string_view token : vocab.tokens) {
    if (token.size() <= kBytesMax) continue;
    return corrupt(fmt::format("a token has {} bytes, more than {}", token.size(), kBytesMax),
                   "tokens");
  }
  return std::unique_ptr<TokenModel>(new LongestMatch(vocab));
}

LongestMatch::LongestMatch(const Vocab& vocab) : trie_(bytes_of_tokens(vocab)) {
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (vocab.tokens[id].empty() || vocab.kind(static_cast<TokenId>(id)) != TokenKind::kNormal) {
      continue;
    }
    const uint32_t node = trie_.insert(vocab.tokens[id]);
    ids_.resize(trie_.node_count(), -1);
    if (ids_[node] < 0) ids_[node] = static_cast<TokenId>(id);
  }
  ids_.resize(trie_.node_count(), -1);
}

void LongestMatch::encode(std::string_view piece, std::vector<TokenId>& out) const {
  for (size_t begin = 0; begin < piece.size();) {
    TokenId best = -1;
    size_t end = begin + 1;
    uint32_t node = ByteTrie::kRoot;
    for (size_t at = begin; at < piece.size(); ++at) {
      node = trie_.step(node, piece[at]);
      if (node == ByteTrie::kNoNode) break;
      if (token_at(node) < 0) continue;
      best = token_at(node);
      end = at + 1;
    }
    if (best >= 0) out.push_back(best);
    begin = end;
  }
}

bool LongestMatch::has_byte(uint8_t byte) const {
  const uint32_t node = trie_.step(ByteTrie::kRoot, static_cast<char>(byte));
  return node != ByteTrie::kNoNode && token_at(node) >= 0;
}

}  // namespace headrace
