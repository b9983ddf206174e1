// Byte-pair merges (Sennrich et al. 2016, arXiv 1508.07909) over byte-level symbols: of all
// adjacent pairs, the one with the lowest rank is merged first, the leftmost of equals.
#pragma once

#include <array>
#include <cstdint>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/flat_table.h"
#include "text/vocab.h"

namespace headrace {

// The merge rules of a vocabulary. Immutable after create(); any thread.
class BpeMerges {
 public:
  // Fails where a merge is not "left right" with both and the product in the vocabulary.
  static Result<BpeMerges> create(const Vocab& vocab, const TokenTable& table);

  // Appends the ids of one piece of text. A byte without a token is dropped, and its neighbours
  // become adjacent, as HF tokenizers does without an unknown token. O(n log n).
  // REQUIRES: piece.size() < 2^31
  void encode(std::string_view piece, std::vector<TokenId>& out) const;

  // Whether every byte has a token, so that any bytes survive encode and decode.
  bool has_all_bytes() const;
  bool has_byte(uint8_t byte) const { return byte_ids_[byte] >= 0; }

 private:
  BpeMerges(size_t merge_count) : ranks_(merge_count) {}

  uint32_t rank(TokenId left, TokenId right) const {
    return ranks_.find(static_cast<uint32_t>(left), static_cast<uint32_t>(right));
  }
  void merge_short(std::span<const TokenId> symbols, std::vector<TokenId>& out) const;
  void merge_long(std::span<const TokenId> symbols, std::vector<TokenId>& out) const;

  std::array<TokenId, 256> byte_ids_{};
  PairTable ranks_;                // (left id, right id) -> rank
  std::vector<TokenId> products_;  // by rank
};

}  // namespace headrace
