#include "text/grammar/token_trie.h"

#include <algorithm>

#include "text/grammar/grammar.h"

namespace headrace {
namespace {

constexpr size_t kSpellingMax = 4096;  // of a token, in bytes: a longer one is left out

// Empty: the token is never part of a text that a grammar describes.
std::string spelling_of(const Tokenizer& tokenizer, TokenId id, bool is_mark) {
  std::string spelling;
  const TokenKind kind = tokenizer.vocab().kind(id);
  const bool is_text = !tokenizer.is_control(id) && kind != TokenKind::kUnused;
  if (!is_text && !is_mark) return spelling;
  tokenizer.append_token_bytes(id, spelling);
  if (spelling.size() > kSpellingMax) return {};
  if (!is_text) return static_cast<char>(kMarkByte) + spelling;
  // The byte that begins a mark is in no text.
  const bool has_mark = spelling.find(static_cast<char>(kMarkByte)) != std::string::npos;
  return has_mark ? std::string() : spelling;
}

}  // namespace

TokenTrie::TokenTrie(const Tokenizer& tokenizer, std::span<const TokenId> marks)
    : tokenizer_(tokenizer), end_ids_(tokenizer.vocab().end_ids) {
  std::vector<TokenId> sorted;
  spelling_first_.push_back(0);
  for (TokenId id = 0; id < tokenizer.vocab_size(); ++id) {
    const bool is_mark = std::binary_search(marks.begin(), marks.end(), id);
    if (!tokenizer.is_end(id)) spellings_ += spelling_of(tokenizer, id, is_mark);
    spelling_first_.push_back(static_cast<uint32_t>(spellings_.size()));
    if (!spelling(id).empty()) sorted.push_back(id);
  }
  std::sort(sorted.begin(), sorted.end(), [&](TokenId a, TokenId b) {
    const int order = spelling(a).compare(spelling(b));
    return order != 0 ? order < 0 : a < b;
  });
  build(sorted);
}

std::string_view TokenTrie::spelling(TokenId id) const {
  if (id < 0 || id >= vocab_size()) return {};
  const uint32_t first = spelling_first_[static_cast<size_t>(id)];
  const uint32_t last = spelling_first_[static_cast<size_t>(id) + 1];
  return std::string_view(spellings_).substr(first, last - first);
}

void TokenTrie::spell(std::string_view text, size_t most, std::vector<TokenId>& tokens) const {
  const auto written = tokenizer_.encode(text, {.add_special = false, .behind_token = true});
  if (!written.ok()) return;
  for (TokenId id : *written) {
    const std::string_view bytes = spelling(id);
    if (most-- == 0 || bytes.empty() || !text.starts_with(bytes)) return;
    tokens.push_back(id);
    text.remove_prefix(bytes.size());
  }
}

bool TokenTrie::is_end(TokenId id) const {
  return std::binary_search(end_ids_.begin(), end_ids_.end(), id);
}

// In the order of their bytes, each token adds the nodes behind what it shares with the one before.
void TokenTrie::build(std::span<const TokenId> sorted) {
  std::vector<size_t> path;  // the nodes of the token before
  std::string_view before;
  const auto close = [&](size_t depth) {
    for (; path.size() > depth; path.pop_back()) {
      nodes_[path.back()].end = static_cast<uint32_t>(nodes_.size());
    }
  };
  for (TokenId id : sorted) {
    const std::string_view text = spelling(id);
    const auto differs = std::mismatch(text.begin(), text.end(), before.begin(), before.end());
    close(static_cast<size_t>(differs.first - text.begin()));
    for (size_t depth = path.size(); depth < text.size(); ++depth) {
      path.push_back(nodes_.size());
      nodes_.push_back({.end = 0,
                        .first_id = static_cast<uint32_t>(ids_.size()),
                        .depth = static_cast<uint16_t>(depth),
                        .byte = static_cast<uint8_t>(text[depth])});
    }
    ids_.push_back(id);
    depth_max_ = std::max(depth_max_, static_cast<int32_t>(text.size()));
    before = text;
  }
  close(0);
  nodes_.push_back(
      {.end = 0, .first_id = static_cast<uint32_t>(ids_.size()), .depth = 0, .byte = 0});
}

}  // namespace headrace
