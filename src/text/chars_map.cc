#include "text/chars_map.h"

#include <cstring>

#include "text/unicode.h"
#include "text/utf8.h"

namespace headrace {
namespace {

// The fields of a unit of the double array.
bool has_value(uint32_t unit) { return (unit >> 8 & 1) != 0; }
uint32_t value_of(uint32_t unit) { return unit & 0x7fffffffu; }
uint32_t label_of(uint32_t unit) { return unit & 0x800000ffu; }
uint32_t offset_of(uint32_t unit) { return (unit >> 10) << ((unit & 0x200u) >> 6); }

// HF tokenizers looks at graphemes of up to this many bytes as a whole.
constexpr size_t kGraphemeBytesMax = 5;

}  // namespace

Result<CharsMap> CharsMap::create(std::string_view blob) {
  CharsMap map;
  if (blob.empty()) return map;
  uint32_t trie_bytes = 0;
  if (blob.size() < sizeof(trie_bytes)) return corrupt("shorter than its head", "charsmap");
  std::memcpy(&trie_bytes, blob.data(), sizeof(trie_bytes));
  blob.remove_prefix(sizeof(trie_bytes));
  if (trie_bytes > blob.size() || trie_bytes % sizeof(uint32_t) != 0 || trie_bytes == 0) {
    return corrupt("its trie does not fit into it", "charsmap");
  }
  map.units_.resize(trie_bytes / sizeof(uint32_t));
  std::memcpy(map.units_.data(), blob.data(), trie_bytes);
  map.replacements_ = blob.substr(trie_bytes);
  return map;
}

std::optional<CharsMap::Match> CharsMap::find(std::string_view text, bool longest) const {
  std::optional<Match> found;
  if (units_.empty()) return found;
  size_t node = offset_of(units_[0]);
  for (size_t at = 0; at < text.size() && text[at] != '\0'; ++at) {
    node ^= static_cast<uint8_t>(text[at]);
    if (node >= units_.size()) break;
    const uint32_t unit = units_[node];
    if (label_of(unit) != static_cast<uint8_t>(text[at])) break;
    node ^= offset_of(unit);
    if (node >= units_.size()) break;
    if (!has_value(unit)) continue;
    found = Match{at + 1, value_of(units_[node])};
    if (!longest) break;
  }
  return found;
}

std::string_view CharsMap::replacement(uint32_t offset) const {
  if (offset >= replacements_.size()) return {};
  const std::string_view rest = std::string_view(replacements_).substr(offset);
  return rest.substr(0, rest.find('\0'));
}

std::string CharsMap::apply_longest(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  while (!text.empty()) {
    size_t length = utf8_step(text).length;
    if (const auto found = find(text, true)) {
      result += replacement(found->offset);
      length = found->length;
    } else {
      result += text.substr(0, length);
    }
    text.remove_prefix(length);
  }
  return result;
}

std::string CharsMap::apply_by_grapheme(std::string_view text) const {
  std::string result;
  result.reserve(text.size());
  const auto append = [&](std::string_view part) {
    const auto found = find(part, false);
    result += found ? replacement(found->offset) : part;
  };
  while (!text.empty()) {
    std::string_view grapheme = text.substr(0, grapheme_length(text));
    text.remove_prefix(grapheme.size());
    if (grapheme.size() <= kGraphemeBytesMax) {
      if (const auto found = find(grapheme, false)) {
        result += replacement(found->offset);
        continue;
      }
    }
    while (!grapheme.empty()) {
      const size_t length = utf8_step(grapheme).length;
      append(grapheme.substr(0, length));
      grapheme.remove_prefix(length);
    }
  }
  return result;
}

}  // namespace headrace
