// ModelUnderTest: a real model loaded as the program loads it, answering requests given as token
// ids. Used by one thread.
#pragma once

#include <memory>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/logprobs.h"
#include "base/sampling_params.h"
#include "base/status.h"
#include "stack/model_stack.h"

namespace headrace {

// A model that the goldens know.
struct TestModel {
  const char* name;         // in the golden files
  const char* environment;  // a variable that names its file
  const char* file;         // else this one in the cache folder
};
inline constexpr TestModel kSmolLm2{"smollm2", "HEADRACE_MODEL_SMOLLM2",
                                    "SmolLM2-135M-Instruct.Q4_1.gguf"};
inline constexpr TestModel kGemma3{"gemma3", "HEADRACE_MODEL_GEMMA3", "gemma-3-270m-q4_k_m.gguf"};
inline constexpr TestModel kQwen2{"qwen2", "HEADRACE_MODEL_QWEN2",
                                  "qwen2.5-coder-0.5b-instruct-q4_k_m.gguf"};

// kNotFound, with how to get it, where there is no such file.
Result<std::string> model_path(const TestModel& model);

struct TestRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
  std::shared_ptr<const TokenConstraint> constraint = nullptr;
  std::shared_ptr<const Adapter> adapter = nullptr;
};

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;         // one per token
  std::vector<TokenLogprobs> prompt_logprobs;  // [i] is of prompt token i + 1
  FinishReason finish = FinishReason::kNone;
};

class ModelUnderTest {
 public:
  // The file at model_path(model); options.model is ignored.
  static Result<ModelUnderTest> load(const TestModel& model, StackOptions options = {});
  // The file or folder options.model.
  static Result<ModelUnderTest> load(const StackOptions& options);

  // All requests at once; outcomes in the order of the requests. REQUIRES: sampling.n == 1 each.
  Result<std::vector<Outcome>> answer(std::span<const TestRequest> requests);
  Result<Outcome> answer(const TestRequest& request);

  ModelStack& stack() { return *stack_; }

 private:
  explicit ModelUnderTest(std::unique_ptr<ModelStack> stack) : stack_(std::move(stack)) {}
  std::unique_ptr<ModelStack> stack_;
};

}  // namespace headrace
