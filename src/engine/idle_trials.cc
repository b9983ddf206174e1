#include "engine/idle_trials.h"

#include "tensor/gemm_library.h"

namespace headrace {
namespace {

// Steps that time the candidates of a layer's products, each a layer's turn: 24 layers give 12
// candidates eight timings in four steps.
constexpr int kGemmTrialRuns = 4;

}  // namespace

Result<bool> IdleTrials::run_one() {
  if (!sizes_tried_) return try_size();
  if (options_.adapters && adapter_sizes_tried_ < graphs_.sizes().size()) return try_adapters();
  return try_full_step();
}

Result<bool> IdleTrials::try_size() {
  const std::vector<int32_t>& sizes = graphs_.sizes();
  const int32_t rows = sizes[costs_.size()];
  const std::vector<AttentionSequence> decodes = padding_.decodes(rows);
  const Result<GemmLibrary*> library = device_.gemm_library();
  const int trials = options_.gemms && library.ok() ? kGemmTrialRuns : 0;
  const bool on_trial = runs_ > 0 && runs_ <= trials;
  if (on_trial) (*library)->begin_trial(stream_);
  const bool last = runs_ == trials + 1;
  const Result<double> seconds = run_({.sequences = decodes, .logit_rows = rows, .lone = !last});
  if (on_trial) (*library)->end_trial();
  HR_RETURN_IF_ERROR(seconds.status());
  ++runs_;
  if (last) {
    costs_.push_back({rows, *seconds});
    runs_ = 0;
  }
  if (costs_.size() < sizes.size()) return true;
  record_sizes_that_pay();
  sizes_tried_ = true;
  return options_.adapters || options_.full_steps;
}

// Products are those of the sizes before: once is enough for kernels to be loaded.
Result<bool> IdleTrials::try_adapters() {
  const int32_t rows = graphs_.sizes()[adapter_sizes_tried_];
  const std::vector<AttentionSequence> decodes = padding_.decodes(rows);
  HR_RETURN_IF_ERROR(run_({.sequences = decodes, .logit_rows = rows, .adapters = true}).status());
  graphs_.has_run({.rows = rows, .adapters = true});
  return ++adapter_sizes_tried_ < graphs_.sizes().size() || options_.full_steps;
}

void IdleTrials::record_sizes_that_pay() {
  graphs_.set_sizes(StepGraphs::worthwhile_sizes(costs_));
  for (const int32_t size : graphs_.sizes()) graphs_.has_run({size});
}

Result<bool> IdleTrials::try_full_step() {
  const Result<GemmLibrary*> library = device_.gemm_library();
  if (!options_.full_steps || !library.ok() || full_steps_tried_ == kGemmTrialRuns) return false;
  (*library)->begin_trial(stream_);
  const std::vector<AttentionSequence> prompts = padding_.prompts(options_.step_tokens);
  const Result<double> seconds = run_({.sequences = prompts, .lone = true});
  (*library)->end_trial();
  HR_RETURN_IF_ERROR(seconds.status());
  return ++full_steps_tried_ < kGemmTrialRuns;
}

}  // namespace headrace
