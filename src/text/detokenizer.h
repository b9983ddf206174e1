// Streams text out of token ids without ever emitting half a character.
#pragma once

#include <span>
#include <string>

#include "base/ids.h"
#include "text/tokenizer.h"

namespace headrace {

// All that push() and flush() returned, joined, is what the ids stand for behind other ids:
// tokenizer.token_bytes() of each, with each maximal subpart that is no UTF-8 replaced by U+FFFD.
// (Tokenizer::decode() of a whole text may take a space from its start.) One thread at a time.
class Detokenizer {
 public:
  // `kept`, ascending: control tokens that leave their text even with skip_special. Both must
  // outlive this.
  Detokenizer(const Tokenizer& tokenizer, bool skip_special, std::span<const TokenId> kept = {})
      : tokenizer_(tokenizer), skip_special_(skip_special), kept_(kept) {}

  // The characters that `id` completes; at most 3 bytes that could begin a character are held.
  std::string push(TokenId id);
  // What is held, as U+FFFD. Then the stream starts anew.
  std::string flush();
  bool holds_bytes() const { return !held_.empty(); }

 private:
  const Tokenizer& tokenizer_;
  const bool skip_special_;
  const std::span<const TokenId> kept_;
  std::string held_;
};

}  // namespace headrace
