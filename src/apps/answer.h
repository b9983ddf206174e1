// An answer as text: prompt ids in, whole characters out as they come, counts and times at the end.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <string>
#include <string_view>
#include <vector>

#include "apps/request_reader.h"
#include "base/json.h"
#include "base/sampling_params.h"
#include "stack/model_stack.h"
#include "text/text_stream.h"

namespace headrace {

struct AnswerRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;  // max_tokens < 0: as many as the context holds
  std::vector<std::string> stops;
  std::vector<TokenId> kept = {};  // ascending: control tokens that are text nevertheless
};

// An answer's bound, within what the context leaves behind the prompt. `asked` < 0: all of it.
// kInvalidArgument, with both numbers, for a prompt that leaves nothing.
Result<int32_t> answer_tokens_max(int64_t prompt_tokens, int32_t asked, int32_t context);

// Prompt: from submission to the first token. Predicted: from there to the last token.
struct AnswerTimings {
  int64_t prompt_tokens = 0;
  int64_t predicted_tokens = 0;
  double prompt_seconds = 0;
  double predicted_seconds = 0;

  double prompt_per_second() const;
  double predicted_per_second() const;  // the first token belongs to the prompt's time
  Json to_json() const;                 // llama.cpp's names
};

class Answer {
 public:
  // kInvalidArgument, with both numbers, for a prompt that does not fit. `stack` must outlive this
  // and have a tokenizer.
  static Result<std::unique_ptr<Answer>> start(ModelStack& stack, AnswerRequest request);

  // Waits for more text. Empty at the end; then the rest of the accessors are final.
  std::optional<std::string> next_text();
  void cancel() { reader_->cancel(); }  // any thread

  const std::vector<TokenId>& tokens() const { return tokens_; }  // with an end id
  // "stop", "length", "abort" or "error"
  std::string_view finish_reason() const { return finish_reason_; }
  const AnswerTimings& timings() const { return timings_; }

 private:
  Answer(const Tokenizer& tokenizer, std::vector<std::string> stops, std::vector<TokenId> kept)
      : kept_(std::move(kept)), text_(tokenizer, {.stops = std::move(stops), .kept = kept_}) {}
  std::string take(const Emission& emission);
  void count(const Emission& emission);

  std::unique_ptr<RequestReader> reader_;
  const std::vector<TokenId> kept_;
  TextStream text_;
  std::vector<TokenId> tokens_;
  std::string_view finish_reason_ = "abort";
  bool ended_ = false;
  AnswerTimings timings_;
  double started_ = 0, first_token_ = 0;  // seconds on the monotonic clock
};

}  // namespace headrace
