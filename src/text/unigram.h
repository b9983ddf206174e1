// The unigram model (Kudo 2018, arXiv 1804.10959): of all ways to cut a piece into tokens, the one
// whose scores (log-probabilities) add up to most, by Viterbi's algorithm.
#pragma once

#include <memory>

#include "base/status.h"
#include "text/byte_fallback.h"
#include "text/byte_trie.h"
#include "text/flat_table.h"
#include "text/token_model.h"
#include "text/tokenizer_recipe.h"
#include "text/vocab.h"

namespace headrace {

class Unigram : public TokenModel {
 public:
  // `vocab` must outlive this. kCorrupt where the vocabulary has no score for each token or a token
  // is longer than 16 KiB: the time for a byte of text goes with the longest token.
  static Result<std::unique_ptr<TokenModel>> create(const Vocab& vocab,
                                                    const TokenModelOptions& options);

  // O(n). A run of characters that are in no token becomes byte tokens, else one unknown token, or
  // nothing where there is none.
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  bool has_byte(uint8_t byte) const override {
    return options_.byte_fallback && bytes_.id(byte) >= 0;
  }

 private:
  struct Cut;
  Unigram(const Vocab& vocab, const TokenModelOptions& options, size_t byte_count);
  struct Unknown {
    size_t begin = 0, end = 0;  // bytes of the piece: unknown characters one after the other
  };
  size_t find_cuts(std::string_view piece, size_t begin, double score,
                   std::vector<Cut>& best) const;
  void emit_unknown(std::string_view piece, Unknown& unknown, std::vector<TokenId>& out) const;

  const Vocab& vocab_;
  const TokenModelOptions options_;
  const ByteFallback bytes_;
  ByteTrie trie_;
  std::vector<TokenId> ids_;  // by node of the trie; -1 = no token ends here
  double unknown_score_ = 0;
};

}  // namespace headrace
