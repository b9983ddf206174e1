// A chat's backend: a model that this process has loaded.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "apps/chat_backend.h"
#include "stack/model_stack.h"
#include "text/output/dialect.h"

namespace headrace {

class LocalChat final : public ChatBackend {
 public:
  // Loads the model. kUnsupported where it has no chat template.
  static Result<std::unique_ptr<LocalChat>> load(const StackOptions& options);

  const ModelStack& stack() const { return *stack_; }

  std::string title() const override;
  Result<std::unique_ptr<ChatAnswer>> answer(const Json& messages,
                                             const ChatSampling& sampling) override;
  Result<int64_t> count_tokens(const Json& messages) override;
  int64_t context_tokens() const override { return stack_->info().max_model_len; }
  Result<std::vector<std::string>> models() override;
  Status use_model(const std::string& name) override;

 private:
  explicit LocalChat(StackOptions options) : options_(std::move(options)) {}
  Status adopt(std::unique_ptr<ModelStack> stack);

  StackOptions options_;
  std::unique_ptr<ModelStack> stack_;
  OutputDialect output_;        // how it writes thoughts
  std::vector<TokenId> marks_;  // control tokens of that
};

}  // namespace headrace
