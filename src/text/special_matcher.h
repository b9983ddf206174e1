// Finds tokens that are matched as whole texts (control, unknown, user-defined) in a text: leftmost
// first, the longest at a place, in one pass over a trie.
#pragma once

#include <optional>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/flat_table.h"
#include "text/vocab.h"

namespace headrace {

// Immutable after create(); any thread.
class SpecialMatcher {
 public:
  enum class Match {
    kUserDefined,            // what user text may always spell
    kUserDefinedAndControl,  // what a template's own text spells
  };
  struct Found {
    size_t offset, length;
    TokenId id;
  };

  // Fails where a special token's text is longer than 1,024 bytes: matching costs up to that much
  // for each byte of text.
  static Result<SpecialMatcher> create(const Vocab& vocab);

  // The first special token of `text` at or after `from`.
  std::optional<Found> find(std::string_view text, size_t from, Match match) const;

 private:
  explicit SpecialMatcher(size_t edge_count) : edges_(edge_count) {}
  void insert(std::string_view text, TokenId id, bool user_defined);

  struct Node {
    TokenId user_defined = -1;  // ids of tokens that end here
    TokenId control = -1;
  };
  std::vector<Node> nodes_{1};
  PairTable edges_;             // (node, byte) -> node
  bool first_bytes_[256] = {};  // which bytes begin a special token
};

}  // namespace headrace
