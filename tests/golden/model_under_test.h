// ModelUnderTest: SmolLM2-135M-Instruct loaded as the program loads it, answering requests given as
// token ids. Used by one thread.
#pragma once

#include <memory>
#include <span>
#include <vector>

#include "apps/model_stack.h"
#include "base/ids.h"
#include "base/logprobs.h"
#include "base/sampling_params.h"
#include "base/status.h"

namespace headrace {

struct TestRequest {
  std::vector<TokenId> prompt;
  SamplingParams sampling;
};

struct Outcome {
  std::vector<TokenId> tokens;
  std::vector<TokenLogprobs> logprobs;         // one per token
  std::vector<TokenLogprobs> prompt_logprobs;  // [i] is of prompt token i + 1
  FinishReason finish = FinishReason::kNone;
};

class ModelUnderTest {
 public:
  // The file that $HEADRACE_MODEL_SMOLLM2 names, else the default model in the cache folder;
  // options.model is ignored.
  static Result<ModelUnderTest> load(StackOptions options = {});

  // All requests at once; outcomes in the order of the requests. REQUIRES: sampling.n == 1 each.
  Result<std::vector<Outcome>> answer(std::span<const TestRequest> requests);
  Result<Outcome> answer(const TestRequest& request);

  ModelStack& stack() { return *stack_; }

 private:
  explicit ModelUnderTest(std::unique_ptr<ModelStack> stack) : stack_(std::move(stack)) {}
  std::unique_ptr<ModelStack> stack_;
};

}  // namespace headrace
