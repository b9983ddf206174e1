// The bytes of a vocabulary's tokens as a tree, laid out so that all tokens are looked at in one
// walk that never turns back.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace headrace {

// Immutable; any thread.
class TokenTrie {
 public:
  // Control, unknown and unused tokens are not in it, nor is what ends an answer. `marks`: control
  // tokens that a grammar may ask for by kMarkByte and their text. The tokenizer outlives it.
  TokenTrie(const Tokenizer& tokenizer, std::span<const TokenId> marks);

  // Nodes in the order of the walk: a node's children follow it, and what is beneath it ends
  // where `end` says.
  struct Node {
    uint32_t end;       // the next node that is not beneath this one
    uint32_t first_id;  // of the tokens that end here, which go up to the next node's
    uint16_t depth;     // bytes before this node's
    uint8_t byte;
  };
  // The last is none: it has only a first_id.
  std::span<const Node> nodes() const { return nodes_; }
  size_t node_count() const { return nodes_.size() - 1; }
  // Tokens in the order of the nodes.
  std::span<const TokenId> ids() const { return ids_; }
  int32_t depth_max() const { return depth_max_; }

  int32_t vocab_size() const { return static_cast<int32_t>(spelling_first_.size()) - 1; }
  // What a token matches; empty: it is not in the tree.
  std::string_view spelling(TokenId id) const;
  // Appends the tokens, at most `most`, that the tokenizer writes this text with behind another;
  // fewer where they do not spell it.
  void spell(std::string_view text, size_t most, std::vector<TokenId>& tokens) const;
  // Ascending.
  std::span<const TokenId> end_ids() const { return end_ids_; }
  bool is_end(TokenId id) const;

 private:
  void build(std::span<const TokenId> sorted);

  const Tokenizer& tokenizer_;
  std::vector<Node> nodes_;
  std::vector<TokenId> ids_;
  std::string spellings_;
  std::vector<uint32_t> spelling_first_;  // [vocabulary + 1]
  std::vector<TokenId> end_ids_;
  int32_t depth_max_ = 0;
};

}  // namespace headrace
