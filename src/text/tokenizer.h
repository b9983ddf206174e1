// Text <-> token ids: byte-level BPE, SentencePiece's BPE and unigram, from GGUF files and
// tokenizer.json. How a family works is data: tokenizer_recipe.h.
//
// Choices where other engines differ (docs/decisions/0007-tokenizers.md):
// - The file's token kinds decide what is special; no text is made a control token for its looks.
// - Text from a GGUF vocabulary is not normalised (no NFC), so that any text decodes to itself; a
//   tokenizer.json is followed in what it says.
// - Bytes that are not UTF-8 are encoded byte by byte and decode to themselves where the vocabulary
//   has tokens for single bytes.
// - A byte that has no token (SmolLM2 has none for 21 of the 256, all control or never in UTF-8
//   text but 0xF1 and 0xF2) is dropped, as the reference implementations do.
#pragma once

#include <limits>
#include <memory>
#include <string>
#include <string_view>
#include <vector>

#include "base/ids.h"
#include "base/status.h"
#include "text/normalizer.h"
#include "text/pre_tokenizer.h"
#include "text/special_matcher.h"
#include "text/token_model.h"
#include "text/tokenizer_recipe.h"
#include "text/vocab.h"

namespace headrace {

struct EncodeOptions {
  bool add_special = true;     // BOS in front and EOS behind, where the vocabulary says so
  bool parse_special = false;  // text that spells a control token becomes that token
  // The text goes on behind a token: a space that belongs in front of a whole text is not put
  // there.
  bool behind_token = false;
  // Where there are more, tokens_max + 1 ids come back, of which nothing is promised: whoever
  // refuses long texts need not wait for them.
  size_t tokens_max = std::numeric_limits<size_t>::max() - 1;
};

// Const methods: any thread.
class Tokenizer {
 public:
  // kUnsupported for a model or pre-tokenizer that is not known, kCorrupt for a vocabulary that
  // contradicts itself.
  static Result<std::unique_ptr<Tokenizer>> create(Vocab vocab);
  ~Tokenizer();
  Tokenizer(const Tokenizer&) = delete;
  Tokenizer& operator=(const Tokenizer&) = delete;

  // Any bytes, NUL and ill-formed UTF-8 included. O(n log n). User-defined tokens are always
  // matched, control tokens only with parse_special. kInvalidArgument over 2^29 bytes.
  Result<std::vector<TokenId>> encode(std::string_view text, EncodeOptions options = {}) const;

  // The raw bytes that `id` stands for, which need not be whole characters. Control tokens give
  // their text. An id outside the vocabulary gives "".
  std::string token_bytes(TokenId id) const;
  void append_token_bytes(TokenId id, std::string& out) const;

  // Raw bytes of `ids` as a whole text: a space that encode() puts in front is taken away.
  // Detokenizer gives well-formed text. skip_special leaves out control tokens.
  std::string decode(TokenSpan ids, bool skip_special) const;

  int vocab_size() const { return static_cast<int>(vocab_->tokens.size()); }
  // Without its merge rules.
  const Vocab& vocab() const { return *vocab_; }
  // Control and unknown tokens. False outside the vocabulary, as is_end.
  bool is_control(TokenId id) const;
  bool is_end(TokenId id) const;
  // Whether decode(encode(x)) == x for all x that hold this byte; else some bytes are dropped.
  bool has_byte(uint8_t byte) const { return model_->has_byte(byte); }

 private:
  struct Parts;
  struct TokenSink;
  explicit Tokenizer(Parts parts);
  // Between the special tokens; in one run of well-formed text; between the special tokens of
  // normalised text.
  Status encode_between(std::string_view text, TextPlace place, TokenSink& sink) const;
  Status encode_valid(std::string_view text, TextPlace place, TokenSink& sink) const;
  Status encode_plain(std::string_view text, TextPlace place, TokenSink& sink) const;
  bool in_vocab(TokenId id) const { return id >= 0 && id < vocab_size(); }

  const std::unique_ptr<const Vocab> vocab_;  // at a fixed address: the model looks into it
  const TokenSpelling spelling_;
  const Normalizer normalizer_;
  const PreTokenizer pre_tokenizer_;
  const SpecialMatcher specials_;
  const SpecialMatcher normalized_specials_;  // user-defined tokens matched in normalised text
  const std::unique_ptr<const TokenModel> model_;
  const size_t token_bytes_max_;  // that a token stands for
};

}  // namespace headrace
