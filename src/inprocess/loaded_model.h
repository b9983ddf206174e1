// What the package loads: a model that generates text, or one that gives vectors.
#pragma once

#include <condition_variable>
#include <memory>
#include <mutex>
#include <string>
#include <string_view>
#include <variant>
#include <vector>

#include "base/sampling_params.h"
#include "base/status.h"
#include "inprocess/request_group.h"
#include "stack/embedding_stack.h"
#include "stack/model_stack.h"

namespace headrace {

// All members: any thread.
class TextModel {
 public:
  // `stack` has a tokenizer.
  explicit TextModel(std::shared_ptr<ModelStack> stack) : stack_(std::move(stack)) {}

  Result<std::vector<TokenId>> encode(std::string_view text) const;
  // `messages`: a JSON array, `variables`: a JSON object of the template's.
  Result<std::vector<TokenId>> encode_chat(std::string_view messages, std::string_view variables,
                                           bool add_generation_prompt,
                                           bool continue_final_message) const;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const;
  std::unique_ptr<RequestGroup> group(NewsTime time) const;

  SamplingParams default_sampling() const;  // what the model's makers suggest
  std::string name() const { return stack_->info().model_name; }
  int32_t max_model_len() const { return stack_->info().max_model_len; }
  int32_t vocabulary() const { return stack_->engine().options().vocab_size; }  // ids of logits
  bool on_gpu() const { return stack_->info().on_gpu; }

 private:
  std::shared_ptr<ModelStack> stack_;
};

// Vectors under way.
class EmbeddingJob {
 public:
  struct State;
  EmbeddingJob(std::shared_ptr<EmbeddingStack> stack, std::shared_ptr<State> state,
               RequestId request)
      : stack_(std::move(stack)), state_(std::move(state)), request_(request) {}
  ~EmbeddingJob();  // cancels what runs

  bool wait(double seconds) const;  // whether it has ended
  // Once it has ended: [texts, dimensions] in the order of the texts, or why there are none.
  Result<std::vector<float>> take();

 private:
  std::shared_ptr<EmbeddingStack> stack_;
  std::shared_ptr<State> state_;
  RequestId request_;
};

// All members: any thread.
class EmbeddingModel {
 public:
  explicit EmbeddingModel(std::shared_ptr<EmbeddingStack> stack) : stack_(std::move(stack)) {}

  Result<std::vector<TokenId>> encode(std::string_view text) const;
  std::string decode(const std::vector<TokenId>& ids, bool skip_special) const;
  Result<std::unique_ptr<EmbeddingJob>> embed(std::vector<std::vector<TokenId>> texts) const;

  int32_t dimensions() const { return stack_->engine().runner().dimensions(); }
  bool is_classifier() const { return !stack_->engine().runner().head().labels.empty(); }
  std::string name() const { return stack_->info().model_name; }
  int32_t max_model_len() const { return stack_->engine().runner().length_max(); }

 private:
  std::shared_ptr<EmbeddingStack> stack_;
};

using LoadedModel = std::variant<std::unique_ptr<TextModel>, std::unique_ptr<EmbeddingModel>>;

// `arguments`: flags as of `headrace run` and those of models that give vectors. Errors are the one
// line that the program would print.
Result<LoadedModel> load_model(const std::string& model, std::vector<std::string> arguments);

}  // namespace headrace
