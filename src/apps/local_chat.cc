#include "apps/local_chat.h"

#include <algorithm>
#include <deque>
#include <utility>

#include <fmt/format.h>

#include "apps/chat_prompt.h"
#include "cli/load_progress.h"
#include "stack/hub_cache.h"
#include "text/output/output_parser.h"

namespace headrace {
namespace {

constexpr size_t kPromptEndTokens = 16;  // as many as the longest opening of a thought

class LocalAnswer final : public ChatAnswer {
 public:
  LocalAnswer(std::unique_ptr<Answer> answer, std::unique_ptr<OutputParser> parser)
      : answer_(std::move(answer)), parser_(std::move(parser)) {}

  std::optional<ChatDelta> next() override {
    while (deltas_.empty() && !ended_) {
      const std::optional<std::string> text = answer_->next_text();
      ended_ = !text;
      if (!parser_) {
        if (text) deltas_.push_back({.text = *text});
        continue;
      }
      OutputEvents events;
      text ? parser_->push(*text, events) : parser_->finish(events);
      for (OutputEvent& event : events) {
        deltas_.push_back({.text = std::move(event.text),
                           .thought = event.kind == OutputEvent::Kind::kReasoning});
      }
    }
    if (deltas_.empty()) return std::nullopt;
    ChatDelta delta = std::move(deltas_.front());
    deltas_.pop_front();
    return delta;
  }

  void cancel() override { answer_->cancel(); }

  Status status() const override {
    if (answer_->finish_reason() != "error") return ok_status();
    return internal_error("the model gave no usable numbers for this prompt");
  }

  AnswerTimings timings() const override { return answer_->timings(); }

 private:
  const std::unique_ptr<Answer> answer_;
  const std::unique_ptr<OutputParser> parser_;  // nullptr: there are no thoughts to tell apart
  std::deque<ChatDelta> deltas_;
  bool ended_ = false;
};

}  // namespace

Result<std::unique_ptr<LocalChat>> LocalChat::load(const StackOptions& options) {
  std::unique_ptr<LocalChat> chat(new LocalChat(options));
  HR_ASSIGN_OR_RETURN(auto stack, load_with_progress(options));
  HR_RETURN_IF_ERROR(chat->adopt(std::move(stack)));
  return chat;
}

Status LocalChat::adopt(std::unique_ptr<ModelStack> stack) {
  if (stack->chat_template() == nullptr || stack->tokenizer() == nullptr) {
    return unsupported(
        fmt::format("{} has no chat template: use 'headrace run --raw'", stack->info().model_name));
  }
  OutputDialect output;
  HR_ASSIGN_OR_RETURN(output.reasoning,
                      choose_reasoning_dialect("auto", stack->chat_template()->source()));
  const std::vector<std::string_view> marks = output.marks();
  marks_.clear();
  const Tokenizer& tokenizer = *stack->tokenizer();
  for (TokenId id = 0; !marks.empty() && id < tokenizer.vocab_size(); ++id) {
    if (!tokenizer.is_control(id)) continue;
    const std::string_view text = tokenizer.vocab().tokens[static_cast<size_t>(id)];
    if (std::find(marks.begin(), marks.end(), text) != marks.end()) marks_.push_back(id);
  }
  output_ = output;
  stack_ = std::move(stack);
  return ok_status();
}

std::string LocalChat::title() const {
  const StackInfo& info = stack_->info();
  return fmt::format("{} ({}), context {} tokens", info.model_name, info.weight_types,
                     info.max_model_len);
}

Result<std::unique_ptr<ChatAnswer>> LocalChat::answer(const Json& messages,
                                                      const ChatSampling& sampling) {
  HR_ASSIGN_OR_RETURN(std::vector<TokenId> prompt, encode_chat(*stack_, messages));
  std::unique_ptr<OutputParser> parser;
  if (output_.reasoning != nullptr) {
    const size_t first = prompt.size() - std::min(prompt.size(), kPromptEndTokens);
    const std::vector<TokenId> last(prompt.begin() + static_cast<ptrdiff_t>(first), prompt.end());
    const bool thinks = output_.opens_reasoning(stack_->tokenizer()->decode(last, false));
    parser = make_output_parser(output_, {.starts_in_reasoning = thinks});
  }
  HR_ASSIGN_OR_RETURN(auto answer, Answer::start(*stack_, {.prompt = std::move(prompt),
                                                           .sampling = sampling.params,
                                                           .stops = sampling.stops,
                                                           .kept = marks_}));
  return std::unique_ptr<ChatAnswer>(
      std::make_unique<LocalAnswer>(std::move(answer), std::move(parser)));
}

Result<int64_t> LocalChat::count_tokens(const Json& messages) {
  HR_ASSIGN_OR_RETURN(const std::vector<TokenId> ids, encode_chat(*stack_, messages));
  return static_cast<int64_t>(ids.size());
}

Result<std::vector<std::string>> LocalChat::models() {
  return unsupported("/model PATH loads another: a .gguf file or a Hugging Face folder");
}

Status LocalChat::use_model(const std::string& name) {
  StackOptions options = options_;
  options.model = name;
  HR_ASSIGN_OR_RETURN(auto stack, load_with_progress(options));
  HR_RETURN_IF_ERROR(adopt(std::move(stack)));
  options_ = std::move(options);
  return ok_status();
}

}  // namespace headrace
