#include "text/byte_fallback.h"

#include <algorithm>

namespace headrace {
namespace {

int hex_digit(char c) {
  if (c >= '0' && c <= '9') return c - '0';
  if (c >= 'A' && c <= 'F') return c - 'A' + 10;
  if (c >= 'a' && c <= 'f') return c - 'a' + 10;
  return -1;
}

}  // namespace

int byte_of_spelling(std::string_view spelling) {
  if (spelling.size() != 6 || !spelling.starts_with("<0x") || spelling[5] != '>') return -1;
  const int high = hex_digit(spelling[3]), low = hex_digit(spelling[4]);
  return high < 0 || low < 0 ? -1 : high * 16 + low;
}

ByteFallback::ByteFallback(const Vocab& vocab) {
  ids_.fill(-1);
  for (size_t id = 0; id < vocab.kinds.size(); ++id) {
    if (vocab.kinds[id] != TokenKind::kByte) continue;
    const int byte = byte_of_spelling(vocab.tokens[id]);
    if (byte >= 0 && ids_[static_cast<size_t>(byte)] < 0) {
      ids_[static_cast<size_t>(byte)] = static_cast<TokenId>(id);
    }
  }
}

bool ByteFallback::has_all(std::string_view bytes) const {
  return std::all_of(bytes.begin(), bytes.end(),
                     [&](char byte) { return ids_[static_cast<uint8_t>(byte)] >= 0; });
}

}  // namespace headrace
