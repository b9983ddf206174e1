// WordPiece (Schuster and Nakajima, 2012; as BERT has it): a word is cut greedily, the longest
// token first. Tokens that go on with a word begin with a prefix, "##".
#pragma once

#include <memory>

#include "base/status.h"
#include "text/byte_trie.h"
#include "text/token_model.h"
#include "text/tokenizer_recipe.h"
#include "text/vocab.h"

namespace headrace {

class WordPiece : public TokenModel {
 public:
  // `vocab` must outlive this. kCorrupt where the vocabulary has no unknown token, or a token is
  // longer than 16 KiB.
  static Result<std::unique_ptr<TokenModel>> create(const Vocab& vocab,
                                                    const TokenModelOptions& options);

  // A word of n bytes takes O(n^2) at most, where every token is a beginning of the next. A word
  // that is no tokens throughout, or of more than word_chars_max characters, is the unknown token.
  void encode(std::string_view piece, std::vector<TokenId>& out) const override;
  // Case and accents are lost before this, and unknown words whole.
  bool has_byte(uint8_t) const override { return false; }

 private:
  WordPiece(const Vocab& vocab, const TokenModelOptions& options, size_t byte_count);
  struct Token {
    TokenId id = -1;    // -1: none
    size_t length = 0;  // bytes of the word
  };
  Token longest_token(uint32_t node, std::string_view rest) const;

  const Vocab& vocab_;
  const TokenModelOptions options_;
  ByteTrie trie_;
  std::vector<TokenId> ids_;      // by node of the trie; -1 = no token ends here
  uint32_t continuing_node_ = 0;  // where tokens that go on with a word begin
};

}  // namespace headrace
