#include "apps/answer.h"

#include <algorithm>
#include <utility>

#include <fmt/format.h>

#include "base/clock.h"

namespace headrace {
namespace {

double now_seconds() { return SystemClock().now_seconds(); }

double rate(double count, double seconds) { return seconds > 0 ? count / seconds : 0; }

}  // namespace

Result<int32_t> answer_tokens_max(int64_t prompt_tokens, int32_t asked, int32_t context) {
  const int64_t room = context - prompt_tokens;
  if (room < 1) {
    return invalid_argument(
        fmt::format("the prompt has {} tokens and the context holds {}: shorten it or raise "
                    "--max-model-len",
                    prompt_tokens, context),
        "prompt");
  }
  return static_cast<int32_t>(asked < 0 ? room : std::min<int64_t>(asked, room));
}

double AnswerTimings::prompt_per_second() const {
  return rate(static_cast<double>(prompt_tokens), prompt_seconds);
}

double AnswerTimings::predicted_per_second() const {
  return rate(static_cast<double>(predicted_tokens - 1), predicted_seconds);
}

Json AnswerTimings::to_json() const {
  const double prompt_rate = prompt_per_second(), predicted_rate = predicted_per_second();
  return Json::object()
      .set("cache_n", 0)
      .set("prompt_n", prompt_tokens)
      .set("prompt_ms", prompt_seconds * 1e3)
      .set("prompt_per_token_ms", rate(1e3, prompt_rate))
      .set("prompt_per_second", prompt_rate)
      .set("predicted_n", predicted_tokens)
      .set("predicted_ms", predicted_seconds * 1e3)
      .set("predicted_per_token_ms", rate(1e3, predicted_rate))
      .set("predicted_per_second", predicted_rate);
}

Result<std::unique_ptr<Answer>> Answer::start(ModelStack& stack, AnswerRequest request) {
  CHECK(stack.tokenizer() != nullptr);
  const auto prompt_tokens = static_cast<int64_t>(request.prompt.size());
  if (prompt_tokens == 0) return invalid_argument("the prompt is empty", "prompt");
  HR_ASSIGN_OR_RETURN(
      request.sampling.max_tokens,
      answer_tokens_max(prompt_tokens, request.sampling.max_tokens, stack.info().max_model_len));
  std::unique_ptr<Answer> answer(
      new Answer(*stack.tokenizer(), std::move(request.stops), std::move(request.kept)));
  answer->timings_.prompt_tokens = prompt_tokens;
  answer->started_ = now_seconds();
  HR_ASSIGN_OR_RETURN(
      answer->reader_,
      RequestReader::submit(stack.engine(), {.prompt = std::move(request.prompt),
                                             .sampling = request.sampling,
                                             .adapter_weights = stack.adapter_of_all()}));
  return answer;
}

std::optional<std::string> Answer::next_text() {
  while (!ended_) {
    const std::optional<Emission> emission = reader_->next();
    if (!emission) ended_ = true;
    std::string text = emission ? take(*emission) : text_.finish().text;
    if (!text.empty()) return text;
  }
  return std::nullopt;
}

std::string Answer::take(const Emission& emission) {
  count(emission);
  std::string text;
  for (TokenId token : emission.tokens) {
    tokens_.push_back(token);
    TextStream::Delta delta = text_.push(token);
    text += delta.text;
    if (!delta.stop) continue;
    finish_reason_ = finish_reason_name(FinishReason::kStop);
    ended_ = true;
    reader_->cancel();
    return text;
  }
  if (emission.finish != FinishReason::kNone) {
    finish_reason_ = finish_reason_name(emission.finish);
  }
  return text;
}

void Answer::count(const Emission& emission) {
  if (emission.tokens.empty()) return;
  const double now = now_seconds();
  if (timings_.predicted_tokens == 0) {
    first_token_ = now;
    timings_.prompt_seconds = now - started_;
  }
  timings_.predicted_tokens += static_cast<int64_t>(emission.tokens.size());
  timings_.predicted_seconds = now - first_token_;
}

}  // namespace headrace
