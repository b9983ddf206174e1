#include "model_under_test.h"

#include <condition_variable>
#include <cstdlib>
#include <filesystem>
#include <iterator>
#include <mutex>
#include <utility>

#include <fmt/format.h>

namespace headrace {
namespace {

std::filesystem::path cache_folder() {
  const char* cache = std::getenv("XDG_CACHE_HOME");
  if (cache != nullptr && *cache != '\0') return cache;
  const char* home = std::getenv("HOME");
  return std::filesystem::path(home == nullptr ? "" : home) / ".cache";
}

// Outcomes of requests in flight, filled by the engine thread. Shared with the sinks, so that it
// outlives them also where a test gives up early.
class OutcomeBoard {
 public:
  explicit OutcomeBoard(size_t count) : outcomes_(count) {}

  void add(size_t index, const Emission& emission) {
    const std::lock_guard lock(mutex_);
    Outcome& outcome = outcomes_[index];
    std::copy(emission.tokens.begin(), emission.tokens.end(), std::back_inserter(outcome.tokens));
    std::copy(emission.logprobs.begin(), emission.logprobs.end(),
              std::back_inserter(outcome.logprobs));
    if (!emission.prompt_logprobs.empty()) {
      CHECK(emission.prompt_first == static_cast<int32_t>(outcome.prompt_logprobs.size()) + 1);
      std::copy(emission.prompt_logprobs.begin(), emission.prompt_logprobs.end(),
                std::back_inserter(outcome.prompt_logprobs));
    }
    if (emission.finish == FinishReason::kNone) return;
    outcome.finish = emission.finish;
    ++finished_;
    done_.notify_all();
  }

  std::vector<Outcome> wait() {
    std::unique_lock lock(mutex_);
    done_.wait(lock, [&] { return finished_ == outcomes_.size(); });
    return std::move(outcomes_);
  }

 private:
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Outcome> outcomes_;
  size_t finished_ = 0;
};

}  // namespace

Result<std::string> model_path(const TestModel& model) {
  const char* named = std::getenv(model.environment);
  const std::filesystem::path path = named != nullptr
                                         ? std::filesystem::path(named)
                                         : cache_folder() / "headrace" / "models" / model.file;
  std::error_code error;
  if (std::filesystem::is_regular_file(path, error)) return path.string();
  return not_found(fmt::format("no model {} at {}: ./test fetches it, or name a file in ${}",
                               model.name, path.string(), model.environment));
}

Result<ModelUnderTest> ModelUnderTest::load(const TestModel& model, StackOptions options) {
  HR_ASSIGN_OR_RETURN(options.model, model_path(model));
  return load(options);
}

Result<ModelUnderTest> ModelUnderTest::load(const StackOptions& options) {
  HR_ASSIGN_OR_RETURN(auto stack, ModelStack::load(options));
  return ModelUnderTest(std::move(stack));
}

Result<std::vector<Outcome>> ModelUnderTest::answer(std::span<const TestRequest> requests) {
  const auto board = std::make_shared<OutcomeBoard>(requests.size());
  for (size_t i = 0; i < requests.size(); ++i) {
    CHECK(requests[i].sampling.n == 1);
    Request request{.id = stack_->engine().next_request_id(),
                    .prompt = requests[i].prompt,
                    .sampling = requests[i].sampling,
                    .adapter_weights = requests[i].adapter,
                    .constraint = requests[i].constraint};
    HR_RETURN_IF_ERROR(stack_->engine().submit(
        std::move(request), [board, i](const Emission& emission) { board->add(i, emission); }));
  }
  return board->wait();
}

Result<Outcome> ModelUnderTest::answer(const TestRequest& request) {
  HR_ASSIGN_OR_RETURN(std::vector<Outcome> outcomes, answer(std::span(&request, 1)));
  return std::move(outcomes.front());
}

}  // namespace headrace
