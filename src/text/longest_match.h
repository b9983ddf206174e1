// Greedy cutting (RWKV's world vocabulary): at each place of a piece the longest token that the
// text there begins with.
#pragma once

#include <memory>
#include <vector>

#include "base/status.h"
#include "text/byte_trie.h"
#include "text/token_model.h"
#include "text/vocab.h"

namespace headrace {

class LongestMatch : public TokenModel {
 public:
  // kCorrupt where a token is longer than 16 KiB: the time for a byte of text goes with the
  // longest.
  static Result<std::unique_ptr<TokenModel>> create(const Vocab& vocab);

  // Bytes that no token begins with are dropped.
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  bool has_byte(uint8_t byte) const override;

 private:
  explicit LongestMatch(const Vocab& vocab);
  TokenId token_at(uint32_t node) const { return ids_[node]; }

  ByteTrie trie_;
  std::vector<TokenId> ids_;  // by node of the trie; -1 = no token ends here
};

}  // namespace headrace
