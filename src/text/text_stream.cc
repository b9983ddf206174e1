#include "text/text_stream.h"

#include "text/utf8.h"

namespace headrace {

TextStream::TextStream(const Tokenizer& tokenizer, TextStreamOptions options)
    : detokenizer_(tokenizer, options.skip_special, options.kept),
      matcher_(std::move(options.stops), options.include_stop, std::move(options.shield)) {}

TextStream::Delta TextStream::push(TokenId token) {
  Delta delta;
  if (stopped_) return delta;
  const size_t begin = decoded_bytes_;
  const TokenText token_text{token, decoded_chars_};
  const std::string text = detokenizer_.push(token);
  decoded_bytes_ += text.size();
  decoded_chars_ += count_code_points(text);
  // Held bytes belong to a character that is yet to come: one byte more must leave.
  const size_t end = decoded_bytes_ + (detokenizer_.holds_bytes() ? 1 : 0);
  pending_.push_back({token_text, begin, end});
  take(matcher_.push(text), delta);
  return delta;
}

TextStream::Delta TextStream::finish() {
  Delta delta;
  if (stopped_) return delta;
  take(matcher_.push(detokenizer_.flush()), delta);
  if (!stopped_) {
    delta.text += matcher_.flush();
    for (const Pending& pending : pending_) delta.tokens.push_back(pending.token);
    pending_.clear();
    stopped_ = true;
  }
  return delta;
}

void TextStream::take(StopMatcher::Step step, Delta& delta) {
  emitted_bytes_ += step.text.size();
  delta.text = std::move(step.text);
  delta.stop = step.stop;
  release(delta);
  if (!step.stop) return;
  stopped_ = true;
  for (const Pending& pending : pending_) {
    if (pending.begin < emitted_bytes_) delta.tokens.push_back(pending.token);
  }
  pending_.clear();
}

void TextStream::release(Delta& delta) {
  while (!pending_.empty() && pending_.front().end <= emitted_bytes_) {
    delta.tokens.push_back(pending_.front().token);
    pending_.pop_front();
  }
}

}  // namespace headrace
