// Token ids of one answer -> the text deltas that a client sees, with stop strings applied and the
// place of each token in the text kept, so that log-probabilities stay beside their text.
#pragma once

#include <deque>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "text/detokenizer.h"
#include "text/stop_matcher.h"
#include "text/tokenizer.h"

namespace headrace {

struct TextStreamOptions {
  bool skip_special = true;  // control tokens leave no text
  std::vector<std::string> stops;
  bool include_stop = false;
  std::span<const TokenId> kept = {};  // ascending: these leave it nevertheless
  StopShield shield = {};
};

// One thread at a time.
class TextStream {
 public:
  struct TokenText {
    TokenId token;
    size_t offset;  // characters (code points) of the whole text before the token's first one
  };
  struct Delta {
    std::string text;            // whole characters
    std::optional<size_t> stop;  // index of the stop string that ended the text
    // Tokens, in order of push, whose text has now left completely. Every pushed token appears
    // in exactly one delta, except those that lie wholly in or behind a stop string cut away.
    std::vector<TokenText> tokens;
  };

  // `tokenizer` and options.kept must outlive this.
  TextStream(const Tokenizer& tokenizer, TextStreamOptions options);

  // After a stop further tokens give empty deltas.
  Delta push(TokenId token);
  // Ends the text: what was held back leaves, and all tokens with it.
  Delta finish();

 private:
  struct Pending {
    TokenText token;
    size_t begin, end;  // bytes of the text before it, and that must have left for it to be whole
  };
  void take(StopMatcher::Step step, Delta& delta);
  void release(Delta& delta);

  Detokenizer detokenizer_;
  StopMatcher matcher_;
  std::deque<Pending> pending_;
  size_t decoded_bytes_ = 0;  // text out of the detokenizer
  size_t decoded_chars_ = 0;
  size_t emitted_bytes_ = 0;  // text that has left
  bool stopped_ = false;
};

}  // namespace headrace
