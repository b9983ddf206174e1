// D4: what each rank has of a mixture of experts.
#include <algorithm>

#include <fmt/format.h>

#include "bench/ablation.h"

namespace headrace {
namespace {

// Ranks as the flags say, two at least. GPUs take one group of ranks a process, so one engine is
// there at a time.
AblationMeasure on_ranks(bool whole_experts,
                         std::function<Result<double>(ModelStack&, uint64_t seed)> measure) {
  return [=](AblationBench& bench) -> Result<double> {
    const AblationBench::Change change = [=](StackOptions& options) {
      options.device.tensor_parallel_size = std::max(options.device.tensor_parallel_size, 2);
      options.device.enable_expert_parallel = whole_experts;
      options.batch.max_num_seqs = 64;
      options.engine.scheduler.enable_prefix_caching = false;
    };
    HR_ASSIGN_OR_RETURN(ModelStack* const stack,
                        bench.only_engine(whole_experts ? "experts" : "columns", change));
    if (stack->config().experts.count == 0)
      return unsupported("the model has no mixtures of experts");
    return measure(*stack, bench.seed());
  };
}

// Seconds of a token of streams that decode side by side: of the last to begin.
auto split_token_seconds(int32_t streams) {
  return [=](ModelStack& stack, uint64_t seed) -> Result<double> {
    const std::vector<WorkItem> items(static_cast<size_t>(streams), {.prompt = 64, .output = 33});
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, items, seed));
    return result.requests.back().per_token();
  };
}

// Seconds to the first token of a prompt.
auto split_prompt_seconds(int32_t tokens) {
  return [=](ModelStack& stack, uint64_t seed) -> Result<double> {
    const WorkItem item{.prompt = tokens, .output = 2};
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(stack, {&item, 1}, seed));
    return result.requests.front().first_token;
  };
}

}  // namespace

std::vector<AblationCase> expert_parallel_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t streams : {1, 8, 64}) {
    cases.push_back({.name = fmt::format("{} streams", streams),
                     .what = "a token",
                     .on = on_ranks(true, split_token_seconds(streams)),
                     .off = on_ranks(false, split_token_seconds(streams))});
  }
  cases.push_back({.name = "prompt of 1024 tokens",
                   .what = "first token",
                   .on = on_ranks(true, split_prompt_seconds(1024)),
                   .off = on_ranks(false, split_prompt_seconds(1024))});
  return cases;
}

}  // namespace headrace
