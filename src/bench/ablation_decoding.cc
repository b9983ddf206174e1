// X1: how many tokens a step brings.
#include <fmt/format.h>

#include "bench/ablation.h"

namespace headrace {
namespace {

// The method and the draft are those of the flags; without any, n-grams.
AblationMeasure speculating(bool speculates, int32_t streams) {
  return [=](AblationBench& bench) -> Result<double> {
    HR_ASSIGN_OR_RETURN(
        ModelStack* const stack,
        bench.engine(speculates ? "speculating" : "plain", [&](StackOptions& options) {
          ProposalOptions& proposals = options.engine.scheduler.proposals;
          options.memory.max_model_len = 1024;
          if (!speculates) {
            proposals.method = ProposalMethod::kNone;
            options.draft_model.clear();
          } else if (options.draft_model.empty()) {
            proposals.method = ProposalMethod::kNgram;
          }
        }));
    const std::vector<WorkItem> items(static_cast<size_t>(streams), {.prompt = 64, .output = 256});
    HR_ASSIGN_OR_RETURN(const WorkloadResult result, run_workload(*stack, items, bench.seed()));
    return result.output_rate();
  };
}

}  // namespace

std::vector<AblationCase> speculation_cases() {
  std::vector<AblationCase> cases;
  for (const int32_t streams : {1, 8}) {
    cases.push_back({fmt::format("{} stream{}", streams, streams == 1 ? "" : "s"), "throughput",
                     speculating(true, streams), speculating(false, streams), kTokensPerSecond});
  }
  return cases;
}

}  // namespace headrace
