// In the place of a model: answers what it was told to, and remembers what it was asked.
#pragma once

#include <algorithm>
#include <deque>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include "apps/chat_backend.h"

namespace headrace {

class FakeChatAnswer final : public ChatAnswer {
 public:
  FakeChatAnswer(std::deque<ChatDelta> deltas, Status status)
      : deltas_(std::move(deltas)), status_(std::move(status)) {}
  std::optional<ChatDelta> next() override {
    if (deltas_.empty()) return std::nullopt;
    ChatDelta delta = deltas_.front();
    deltas_.pop_front();
    return delta;
  }
  void cancel() override { deltas_.clear(); }
  Status status() const override { return status_; }
  AnswerTimings timings() const override {
    return {
        .prompt_tokens = 10, .predicted_tokens = 3, .prompt_seconds = 1, .predicted_seconds = 1};
  }

 private:
  std::deque<ChatDelta> deltas_;
  const Status status_;
};

class FakeChatBackend final : public ChatBackend {
 public:
  std::string title() const override { return "fake " + model; }
  Result<std::unique_ptr<ChatAnswer>> answer(const Json& messages, const ChatSampling&) override {
    if (!refusal.ok()) return refusal;
    asked.push_back(messages);
    return std::unique_ptr<ChatAnswer>(std::make_unique<FakeChatAnswer>(deltas, failure));
  }
  // A token a byte of content.
  Result<int64_t> count_tokens(const Json& messages) override {
    ++counts;
    int64_t bytes = 0;
    for (const Json& each : messages.as_array()) {
      bytes += static_cast<int64_t>(each.find("content")->as_string().size());
    }
    return bytes;
  }
  int64_t context_tokens() const override { return context; }
  Result<std::vector<std::string>> models() override { return std::vector<std::string>{"a", "b"}; }
  Status use_model(const std::string& name) override {
    if (name != "a" && name != "b") return not_found("no such model");
    model = name;
    return ok_status();
  }

  std::string model = "a";
  std::deque<ChatDelta> deltas = {{.text = "an answer"}};
  Status refusal, failure;
  int64_t context = 0;
  int counts = 0;  // calls of count_tokens()
  std::vector<Json> asked;
};

}  // namespace headrace
