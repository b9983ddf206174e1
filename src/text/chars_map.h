// SentencePiece's compiled normaliser ("precompiled_charsmap"): a double-array trie (Aoe 1989, in
// the layout of darts-clone) from texts to their replacements.
#pragma once

#include <cstdint>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/status.h"

namespace headrace {

// Immutable after create(); any thread. No blob, however wrong, leads outside its tables.
class CharsMap {
 public:
  // kCorrupt where the sizes contradict each other. An empty blob replaces nothing.
  static Result<CharsMap> create(std::string_view blob);

  // As SentencePiece does it: the longest text that is in the trie is replaced.
  // REQUIRES for both: `text` is well-formed UTF-8.
  std::string apply_longest(std::string_view text) const;
  // As HF tokenizers does it: a grapheme of under 6 bytes is replaced as a whole by what the
  // shortest text of the trie that it begins with becomes, else each character by itself.
  std::string apply_by_grapheme(std::string_view text) const;

 private:
  struct Match {
    size_t length;
    uint32_t offset;  // of the replacement
  };
  std::optional<Match> find(std::string_view text, bool longest) const;
  std::string_view replacement(uint32_t offset) const;

  std::vector<uint32_t> units_;
  std::string replacements_;  // each ends with NUL
};

}  // namespace headrace
