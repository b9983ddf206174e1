// SentencePiece's byte-pair encoding (Kudo and Richardson 2018, arXiv 1808.06226): no merge rules,
// but a score for each token. Of all adjacent pairs whose joined text is a token, the one with the
// highest score is joined first, the leftmost of equals. Characters that end up in no token are
// spelled as byte tokens.
#pragma once

#include <memory>

#include "base/status.h"
#include "text/byte_fallback.h"
#include "text/flat_table.h"
#include "text/token_model.h"
#include "text/vocab.h"

namespace headrace {

class ScoreBpe : public TokenModel {
 public:
  // `vocab` must outlive this. Fails where the vocabulary has no score for each token.
  static Result<std::unique_ptr<TokenModel>> create(const Vocab& vocab);

  // O(n log n). A character whose bytes have no tokens becomes the unknown token, or nothing where
  // there is none.
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  bool has_byte(uint8_t byte) const override { return bytes_.id(byte) >= 0; }

 private:
  struct Symbol {
    uint32_t begin, length;  // bytes of the piece
    TokenId id;              // -1 = the text is no token
  };
  explicit ScoreBpe(const Vocab& vocab);
  TokenId find(std::string_view text) const;
  uint32_t rank(TokenId id) const;
  void encode_word(std::string_view word, std::vector<TokenId>& out) const;
  size_t word_length(std::string_view text) const;

  const Vocab& vocab_;
  const TokenTable table_;
  const ByteFallback bytes_;
  // Whether a token has this byte in front of a U+2581 that is not its first character. Everywhere
  // else a text can be cut before U+2581, since no token goes over the cut.
  bool before_space_[256] = {};
};

}  // namespace headrace
