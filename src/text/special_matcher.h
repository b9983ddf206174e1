// Finds tokens that are matched as whole texts (control, unknown, user-defined) in a text: leftmost
// first, the longest at a place, in one pass over a trie.
#pragma once

#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/byte_trie.h"
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
    size_t offset, length;  // with the spaces that the token's flags take in
    TokenId id;
  };
  struct Entry {
    std::string_view text;
    TokenId id;
    bool user_defined;
    AddedTokenFlags flags;
  };

  // All special tokens of a vocabulary that are matched before the text is normalised. Fails where
  // a special token's text is longer than 1,024 bytes: matching costs up to that much for each byte
  // of text.
  static Result<SpecialMatcher> create(const Vocab& vocab);
  // Of `entries`, by ascending id.
  static Result<SpecialMatcher> create(const std::vector<Entry>& entries);

  // The first special token of `text` at or after `from`. Spaces before `from` are not taken in.
  std::optional<Found> find(std::string_view text, size_t from, Match match) const;

  bool empty() const { return nodes_.size() == 1; }

 private:
  explicit SpecialMatcher(size_t byte_count) : trie_(byte_count) {}
  void insert(const Entry& entry);
  std::optional<Found> find_at(std::string_view text, size_t start, Match match) const;
  AddedTokenFlags flags_of(TokenId id) const;

  struct Node {
    TokenId user_defined = -1;  // ids of tokens that end here
    TokenId control = -1;
  };
  ByteTrie trie_;
  std::vector<Node> nodes_{1};       // by the trie's node
  std::vector<AddedToken> flagged_;  // by id, those that have flags
  bool first_bytes_[256] = {};       // which bytes begin a special token
};

}  // namespace headrace
