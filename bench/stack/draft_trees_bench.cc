// draft_trees_bench: how many tokens a verification brings where a draft model or heads propose
// chains or trees, whatever rows and passes cost.
//
//   draft_trees_bench MODEL DRAFT [--depth N] [--answer N] < prompts
//
// On a CPU, of prompts as bench/workloads/proposals.json has them, answered greedily with at most
// so many tokens each. One JSON line for each width and size of trees.
#include <fmt/format.h>

#include <condition_variable>
#include <cstdlib>
#include <iostream>
#include <iterator>
#include <mutex>
#include <string>
#include <string_view>

#include "base/json.h"
#include "stack/model_stack.h"

namespace headrace {
namespace {

void answer(ModelStack& stack, const std::string& prompt, int32_t max_tokens) {
  std::mutex mutex;
  std::condition_variable changed;
  bool ended = false;
  Request request{.id = stack.engine().next_request_id(),
                  .prompt = stack.tokenizer()->encode(prompt).value(),
                  .sampling = {.temperature = 0, .max_tokens = max_tokens}};
  const Status submitted = stack.engine().submit(std::move(request), [&](const Emission& emission) {
    if (emission.finish == FinishReason::kNone) return;
    const std::lock_guard lock(mutex);
    ended = true;
    changed.notify_all();
  });
  CHECK_MSG(submitted.ok(), std::string(submitted.message()).c_str());
  std::unique_lock lock(mutex);
  changed.wait(lock, [&] { return ended; });
}

Status measure(StackOptions options, const Json& prompts, int32_t max_tokens) {
  ProposalOptions& wanted = options.engine.scheduler.proposals;
  HR_ASSIGN_OR_RETURN(const auto stack, ModelStack::load(options));
  for (const Json& prompt : prompts.as_array()) {
    answer(*stack, prompt.find("prompt")->as_string(), max_tokens);
  }
  const ProposalStats stats = stack->engine().stats().scheduler.proposals;
  const auto verifications = static_cast<double>(stats.verifications);
  fmt::print(
      R"({{"width": {}, "tokens_max": {}, "depth": {}, "tokens_a_verification": {:.3f}, "proposed_a_verification": {:.2f}, "verifications": {}}})"
      "\n",
      wanted.tree_width, wanted.tree_width == 1 ? wanted.tokens_max : wanted.tree_tokens,
      wanted.tokens_max, 1 + static_cast<double>(stats.accepted) / verifications,
      static_cast<double>(stats.proposed) / verifications, stats.verifications);
  std::fflush(stdout);
  return ok_status();
}

}  // namespace
}  // namespace headrace

int main(int argc, char** argv) {
  using namespace headrace;
  int32_t depth = 5, max_tokens = 64;
  for (int i = 3; i + 1 < argc; i += 2) {
    if (std::string_view(argv[i]) == "--depth") depth = std::atoi(argv[i + 1]);
    if (std::string_view(argv[i]) == "--answer") max_tokens = std::atoi(argv[i + 1]);
  }
  const std::string text(std::istreambuf_iterator<char>(std::cin), {});
  const Result<Json> prompts = parse_json(text);
  if (argc < 3 || !prompts.ok()) {
    std::cerr << "draft_trees_bench: MODEL DRAFT, and prompts on the standard input\n";
    return 1;
  }
  StackOptions options{.model = argv[1],
                       .draft_model = argv[2],
                       .device = {.choice = DeviceChoice::kCpu, .batch_invariant = true},
                       .memory = {.max_model_len = 2048}};
  options.engine.scheduler.proposals = {
      .tokens_max = depth, .chance_min = 0, .whatever_they_cost = true};
  for (const auto& [width, tokens] : {std::pair{1, depth}, {2, 10}, {4, 16}, {4, 32}}) {
    options.engine.scheduler.proposals.tree_width = width;
    options.engine.scheduler.proposals.tree_tokens = tokens;
    const Status status = measure(options, *prompts, max_tokens);
    if (status.ok()) continue;
    std::cerr << "draft_trees_bench: " << status.message() << '\n';
    return 1;
  }
  return 0;
}
