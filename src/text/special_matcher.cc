#include "text/special_matcher.h"

#include <fmt/core.h>

namespace headrace {
namespace {

constexpr size_t kSpecialTextMax = 1024;

bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown ||
         kind == TokenKind::kUserDefined;
}

}  // namespace

Result<SpecialMatcher> SpecialMatcher::create(const Vocab& vocab) {
  size_t byte_count = 0;
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    if (!is_special(vocab.kind(static_cast<TokenId>(id)))) continue;
    if (vocab.tokens[id].size() > kSpecialTextMax) {
      return corrupt(fmt::format("special token {} has {} bytes, more than {}", id,
                                 vocab.tokens[id].size(), kSpecialTextMax),
                     "tokens");
    }
    byte_count += vocab.tokens[id].size();
  }
  SpecialMatcher matcher(byte_count);
  for (size_t id = 0; id < vocab.tokens.size(); ++id) {
    const TokenKind kind = vocab.kind(static_cast<TokenId>(id));
    if (!is_special(kind) || vocab.tokens[id].empty()) continue;
    matcher.insert(vocab.tokens[id], static_cast<TokenId>(id), kind == TokenKind::kUserDefined);
  }
  return matcher;
}

void SpecialMatcher::insert(std::string_view text, TokenId id, bool user_defined) {
  first_bytes_[static_cast<uint8_t>(text[0])] = true;
  uint32_t node = 0;
  for (char c : text) {
    const uint8_t byte = static_cast<uint8_t>(c);
    uint32_t next = edges_.find(node, byte);
    if (next == PairTable::kNone) {
      next = static_cast<uint32_t>(nodes_.size());
      edges_.insert(node, byte, next);
      nodes_.emplace_back();
    }
    node = next;
  }
  TokenId& slot = user_defined ? nodes_[node].user_defined : nodes_[node].control;
  if (slot < 0) slot = id;
}

std::optional<SpecialMatcher::Found> SpecialMatcher::find(std::string_view text, size_t from,
                                                          Match match) const {
  for (size_t start = from; start < text.size(); ++start) {
    if (!first_bytes_[static_cast<uint8_t>(text[start])]) continue;
    Found best{start, 0, -1};
    uint32_t node = 0;
    for (size_t at = start; at < text.size(); ++at) {
      node = edges_.find(node, static_cast<uint8_t>(text[at]));
      if (node == PairTable::kNone) break;
      TokenId id = nodes_[node].user_defined;
      if (id < 0 && match == Match::kUserDefinedAndControl) id = nodes_[node].control;
      if (id >= 0) best = {start, at + 1 - start, id};
    }
    if (best.id >= 0) return best;
  }
  return std::nullopt;
}

}  // namespace headrace
