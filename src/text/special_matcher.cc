#include "text/special_matcher.h"

#include <algorithm>

#include <fmt/core.h>

#include "text/tokenizer_recipe.h"
#include "text/unicode.h"
#include "text/utf8.h"

namespace headrace {
namespace {

constexpr size_t kSpecialTextMax = 1024;

bool is_special(TokenKind kind) {
  return kind == TokenKind::kControl || kind == TokenKind::kUnknown ||
         kind == TokenKind::kUserDefined;
}

// The character that ends at `end`, which is a boundary of characters in well-formed text.
char32_t character_before(std::string_view text, size_t end) {
  size_t begin = end - 1;
  while (begin > 0 && end - begin < 4 && (static_cast<uint8_t>(text[begin]) & 0xC0) == 0x80)
    --begin;
  return utf8_step(text.substr(begin, end - begin)).code_point;
}

// Where the white space that ends at `end` begins, at the earliest at `from`.
size_t space_before(std::string_view text, size_t from, size_t end) {
  while (end > from) {
    const char32_t c = character_before(text, end);
    if (!is_white_space(c)) break;
    end -= c < 0x80 ? 1 : c < 0x800 ? 2 : 3;
  }
  return std::max(end, from);
}

size_t space_behind(std::string_view text, size_t at) {
  while (at < text.size()) {
    const Utf8Step step = utf8_step(text.substr(at));
    if (step.state != Utf8State::kValid || !is_white_space(step.code_point)) break;
    at += step.length;
  }
  return at;
}

bool stands_alone(std::string_view text, size_t begin, size_t end) {
  if (begin > 0 && is_word_character(character_before(text, begin))) return false;
  return end == text.size() || !is_word_character(utf8_step(text.substr(end)).code_point);
}

}  // namespace

Result<SpecialMatcher> SpecialMatcher::create(const Vocab& vocab) {
  std::vector<Entry> entries;
  auto added = vocab.added.begin();
  for (size_t i = 0; i < vocab.kinds.size(); ++i) {
    const TokenId id = static_cast<TokenId>(i);
    if (!is_special(vocab.kinds[i]) || vocab.tokens[i].empty()) continue;
    while (added != vocab.added.end() && added->id < id) ++added;
    const bool flagged = added != vocab.added.end() && added->id == id;
    const AddedTokenFlags flags = flagged ? added->flags : AddedTokenFlags{};
    const bool user_defined = vocab.kinds[i] == TokenKind::kUserDefined;
    if (flags.normalized && user_defined) continue;
    entries.push_back({vocab.tokens[i], id, user_defined, flags});
  }
  return create(entries);
}

Result<SpecialMatcher> SpecialMatcher::create(const std::vector<Entry>& entries) {
  size_t byte_count = 0;
  for (const Entry& entry : entries) {
    if (entry.text.size() > kSpecialTextMax) {
      return corrupt(fmt::format("special token {} has {} bytes, more than {}", entry.id,
                                 entry.text.size(), kSpecialTextMax),
                     "tokens");
    }
    byte_count += entry.text.size();
  }
  SpecialMatcher matcher(byte_count);
  for (const Entry& entry : entries) {
    if (!entry.text.empty()) matcher.insert(entry);
  }
  return matcher;
}

void SpecialMatcher::insert(const Entry& entry) {
  first_bytes_[static_cast<uint8_t>(entry.text[0])] = true;
  const uint32_t node = trie_.insert(entry.text);
  nodes_.resize(trie_.node_count());
  TokenId& slot = entry.user_defined ? nodes_[node].user_defined : nodes_[node].control;
  if (slot < 0) slot = entry.id;
  const AddedTokenFlags& flags = entry.flags;
  if (flags.lstrip || flags.rstrip || flags.single_word) flagged_.push_back({entry.id, flags});
}

AddedTokenFlags SpecialMatcher::flags_of(TokenId id) const {
  const auto found =
      std::lower_bound(flagged_.begin(), flagged_.end(), id,
                       [](const AddedToken& token, TokenId i) { return token.id < i; });
  return found != flagged_.end() && found->id == id ? found->flags : AddedTokenFlags{};
}

std::optional<SpecialMatcher::Found> SpecialMatcher::find(std::string_view text, size_t from,
                                                          Match match) const {
  for (size_t start = from; start < text.size(); ++start) {
    if (!first_bytes_[static_cast<uint8_t>(text[start])]) continue;
    std::optional<Found> found = find_at(text, start, match);
    if (!found) continue;
    if (flagged_.empty()) return found;
    const AddedTokenFlags flags = flags_of(found->id);
    size_t begin = found->offset, end = begin + found->length;
    if (flags.single_word && !stands_alone(text, begin, end)) {
      start = end - 1;
      continue;
    }
    if (flags.lstrip) begin = space_before(text, from, begin);
    if (flags.rstrip) end = space_behind(text, end);
    return Found{begin, end - begin, found->id};
  }
  return std::nullopt;
}

// The longest special token that begins at `start`.
std::optional<SpecialMatcher::Found> SpecialMatcher::find_at(std::string_view text, size_t start,
                                                             Match match) const {
  std::optional<Found> best;
  uint32_t node = ByteTrie::kRoot;
  for (size_t at = start; at < text.size(); ++at) {
    node = trie_.step(node, text[at]);
    if (node == ByteTrie::kNoNode) break;
    TokenId id = nodes_[node].user_defined;
    if (id < 0 && match == Match::kUserDefinedAndControl) id = nodes_[node].control;
    if (id >= 0) best = Found{start, at + 1 - start, id};
  }
  return best;
}

}  // namespace headrace
