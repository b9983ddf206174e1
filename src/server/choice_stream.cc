#include "server/choice_stream.h"

#include <algorithm>
#include <iterator>

namespace headrace {
size_t count_character_starts(std::string_view bytes) {
  return static_cast<size_t>(std::count_if(bytes.begin(), bytes.end(), [](char c) {
    return (static_cast<unsigned char>(c) & 0xC0) != 0x80;
  }));
}

void ChoiceDelta::append(ChoiceDelta next) {
  if (empty() && generated == 0 && echoed == 0) return void(*this = std::move(next));
  text += next.text;
  for (OutputEvent& event : next.events) append_event(events, std::move(event));
  std::move(next.tokens.begin(), next.tokens.end(), std::back_inserter(tokens));
  echoed += next.echoed;
  generated += next.generated;
  reasoning += next.reasoning;
  if (next.finish == FinishReason::kNone) return;
  finish = next.finish;
  called = next.called;
  stop_reason = std::move(next.stop_reason);
  beam_score = next.beam_score;
}

ChoiceStream::ChoiceStream(const Tokenizer* tokenizer, ChoiceStreamOptions options)
    : tokenizer_(tokenizer),
      stops_(options.text.stops),
      include_stop_(options.text.include_stop),
      prompt_chars_(options.prompt_chars),
      parser_(std::move(options.parser)) {
  if (tokenizer) text_.emplace(*tokenizer, std::move(options.text));
}

ChoiceDelta ChoiceStream::take(Emission emission) {
  ChoiceDelta delta;
  if (finished_) return delta;
  const size_t count = emission.tokens.size();
  // The id that stopped the choice is reported as a token but leaves no text.
  const bool hide_last = emission.finish == FinishReason::kStop && count > 0 && !include_stop_ &&
                         (emission.stop_token == emission.tokens.back() ||
                          (tokenizer_ && tokenizer_->is_end(emission.tokens.back())));
  std::optional<TokenRecord> hidden;
  for (size_t i = 0; i < count && !finished_; ++i) {
    std::optional<TokenLogprobs> logprobs;
    if (i < emission.logprobs.size()) logprobs = std::move(emission.logprobs[i]);
    ++delta.generated;
    if (parser_ && parser_->in_reasoning()) ++delta.reasoning;
    if (hide_last && i + 1 == count) {
      hidden = TokenRecord{emission.tokens[i], 0, std::move(logprobs)};
    } else {
      push(emission.tokens[i], std::move(logprobs), delta);
    }
  }
  if (!finished_ && emission.finish != FinishReason::kNone)
    finish(emission, std::move(hidden), delta);
  for (const OutputEvent& event : delta.events) {
    called_ = called_ || event.kind == OutputEvent::Kind::kCallBegin;
  }
  delta.called = finished_ && called_;
  delta.beam_score = emission.beam_score;
  return delta;
}

void ChoiceStream::push(TokenId token, std::optional<TokenLogprobs> logprobs, ChoiceDelta& delta) {
  if (!text_) return delta.tokens.push_back({token, prompt_chars_, std::move(logprobs)});
  pending_.push_back(std::move(logprobs));
  append(text_->push(token), delta);
}

void ChoiceStream::append(TextStream::Delta text, ChoiceDelta& delta) {
  for (const TextStream::TokenText& token : text.tokens) {
    delta.tokens.push_back(
        {token.token, prompt_chars_ + token.offset, std::move(pending_.front())});
    pending_.pop_front();
  }
  chars_ += count_character_starts(text.text);
  if (parser_) {
    parser_->push(text.text, delta.events);
    if (text.stop) parser_->finish(delta.events);
  } else {
    delta.text += text.text;
  }
  if (text.stop) delta.stop_reason = stops_[*text.stop];
  finished_ = text.stop || (parser_ && parser_->stopped());
  if (finished_) delta.finish = FinishReason::kStop;
}

void ChoiceStream::finish(const Emission& emission, std::optional<TokenRecord> hidden,
                          ChoiceDelta& delta) {
  if (text_) append(text_->finish(), delta);
  if (finished_) return;  // the held text completed a stop string
  if (parser_) parser_->finish(delta.events);
  finished_ = true;
  delta.finish = emission.finish;
  if (emission.stop_token) delta.stop_reason = *emission.stop_token;
  if (!hidden) return;
  hidden->offset = prompt_chars_ + chars_;
  delta.tokens.push_back(std::move(*hidden));
}

}  // namespace headrace
