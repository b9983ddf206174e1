// Byte-pair merges (Sennrich et al. 2016, arXiv 1508.07909) by a list of rules, over bytes or over
// characters. The loop is in merge_symbols.h.
#pragma once

#include <array>
#include <cstdint>
#include <memory>
#include <span>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/byte_fallback.h"
#include "text/flat_table.h"
#include "text/token_model.h"
#include "text/tokenizer_recipe.h"
#include "text/vocab.h"

namespace headrace {

// The merge rules of a vocabulary. Immutable after create(); any thread.
class BpeMerges : public TokenModel {
 public:
  // `vocab` must outlive this. Fails where a merge is not "left right" with both and the product in
  // the vocabulary. REQUIRES: options.kind is kByteBpe or kCharacterBpe
  static Result<std::unique_ptr<TokenModel>> create(const Vocab& vocab,
                                                    const TokenModelOptions& options);

  // O(n log n). A byte or character without a token becomes byte tokens or the unknown token, as
  // the options say; else it is dropped, and its neighbours become adjacent, as HF tokenizers does.
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  bool has_byte(uint8_t byte) const override;

 private:
  class Symbols;
  BpeMerges(const Vocab& vocab, const TokenModelOptions& options);
  Status read_merges();
  Status read_merge_batch(size_t begin, TokenId& guess);

  TokenId usable(TokenId id) const;
  TokenId find_whole(std::string_view piece) const;
  void bytes_to_symbols(std::string_view piece, Symbols& symbols) const;
  void characters_to_symbols(std::string_view piece, Symbols& symbols) const;
  void push_unknown(bool after_unknown, Symbols& symbols) const;

  const Vocab& vocab_;
  const TokenModelOptions options_;
  const TokenTable table_;
  const ByteFallback byte_tokens_;     // <0x00> to <0xFF>
  std::array<TokenId, 256> byte_ids_;  // by GPT-2's alphabet
  PairTable ranks_;                    // (left id, right id) -> rank
  std::vector<TokenId> products_;      // by rank
};

}  // namespace headrace
