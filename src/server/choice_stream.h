// One choice of an answer: token ids from the engine -> text deltas, with every token's place and
// log-probabilities kept beside its text.
#pragma once

#include <deque>
#include <memory>
#include <optional>
#include <string>
#include <variant>
#include <vector>

#include "base/ids.h"
#include "base/logprobs.h"
#include "sched/request.h"
#include "text/output/output_parser.h"
#include "text/text_stream.h"

namespace headrace {

// A token of an answer (or, with echo, of its prompt).
struct TokenRecord {
  TokenId token = -1;
  size_t offset = 0;                      // characters of the choice's text before it
  std::optional<TokenLogprobs> logprobs;  // when asked for; never for a prompt's first token
};

// What ended a choice besides a length or an end id: a stop string or an id of stop_token_ids.
using StopReason = std::variant<std::monostate, std::string, TokenId>;

struct ChoiceDelta {
  std::string text;                 // whole characters; without a parser
  OutputEvents events;              // with one: what the text means
  std::vector<TokenRecord> tokens;  // whose text has left completely
  size_t echoed = 0;                // how many of `tokens`, at the front, are of the prompt
  int32_t generated = 0;            // tokens the engine made, also those that left no text
  int32_t reasoning = 0;            // of them: thoughts
  FinishReason finish = FinishReason::kNone;
  bool called = false;                         // at the finish: the choice holds calls of tools
  std::vector<TokenLogprobs> prompt_logprobs;  // of a whole answer that tells them: of tokens 1..
  StopReason stop_reason;
  std::optional<BeamScore> beam_score;  // at the finish of an answer of a search

  // The choice ended in the midst of what it says.
  bool cut() const {
    return finish == FinishReason::kLength || finish == FinishReason::kDeadEnd ||
           finish == FinishReason::kRepetition;
  }
  bool empty() const {
    return text.empty() && events.empty() && tokens.empty() && finish == FinishReason::kNone;
  }
  void append(ChoiceDelta next);
};

struct ChoiceStreamOptions {
  TextStreamOptions text;
  size_t prompt_chars = 0;  // with echo: characters in front of the answer
  std::unique_ptr<OutputParser> parser = nullptr;
};

// Characters of UTF-8 text that begin in `bytes`, which may start and end inside one.
size_t count_character_starts(std::string_view bytes);

// One thread at a time. `tokenizer` must outlive this; nullptr (a model without vocabulary) gives
// tokens without text.
class ChoiceStream {
 public:
  ChoiceStream(const Tokenizer* tokenizer, ChoiceStreamOptions options);

  // The emission's tokens; its prompt log-probabilities are the caller's. A delta that finishes
  // where the emission does not, by a stop string or because its one call is complete, means that
  // the engine should drop the choice.
  ChoiceDelta take(Emission emission);
  bool finished() const { return finished_; }

 private:
  void push(TokenId token, std::optional<TokenLogprobs> logprobs, ChoiceDelta& delta);
  void append(TextStream::Delta text, ChoiceDelta& delta);
  void finish(const Emission& emission, std::optional<TokenRecord> hidden, ChoiceDelta& delta);

  const Tokenizer* const tokenizer_;
  const std::vector<std::string> stops_;
  const bool include_stop_;
  const size_t prompt_chars_;
  std::unique_ptr<OutputParser> parser_;
  std::optional<TextStream> text_;
  std::deque<std::optional<TokenLogprobs>> pending_;  // of tokens whose text is held back
  size_t chars_ = 0;                                  // of text that has left
  bool called_ = false;
  bool finished_ = false;
};

}  // namespace headrace
