// SentencePiece's spelling of single bytes as tokens: <0x00> to <0xFF>.
#pragma once

#include <array>
#include <cstdint>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/vocab.h"

namespace headrace {

// The byte that `spelling` stands for, or -1: exactly "<0x", two hexadecimal digits, ">".
int byte_of_spelling(std::string_view spelling);

// The byte tokens of a vocabulary.
class ByteFallback {
 public:
  // Every token of kind kByte that is spelled as a byte; the first of equals.
  explicit ByteFallback(const Vocab& vocab);

  // -1 = no token
  TokenId id(uint8_t byte) const { return ids_[byte]; }
  bool has_all(std::string_view bytes) const;

 private:
  std::array<TokenId, 256> ids_;
};

}  // namespace headrace
