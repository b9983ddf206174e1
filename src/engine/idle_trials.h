// IdleTrials: what a GPU tries while there is nothing to compute. Every size that steps may be
// padded to runs as padding, one run a call: once so that its kernels are loaded, as often as
// trials of matrix products need, and once to see what it costs. Then the sizes that pay are
// recorded, where steps may have adapters with and without. Steps full of prompts may follow, for
// trials of their products.
#pragma once

#include <cstdint>
#include <functional>
#include <span>
#include <vector>

#include "base/status.h"
#include "engine/padding_step.h"
#include "engine/step_graphs.h"
#include "tensor/device.h"

namespace headrace {

// Used by the engine thread.
class IdleTrials {
 public:
  struct Options {
    bool gemms = false;       // the library's algorithms are timed with each size
    bool full_steps = false;  // and with full steps of prompts
    int32_t step_tokens = 0;  // of a full step
    bool adapters = false;    // steps may have some: each size is recorded with them too
  };
  // Runs a step of nothing but padding; the seconds it took on the device.
  using RunPadding = std::function<Result<double>(const PaddingStep& step)>;

  // All outlive this. `stream` is that of the runs.
  IdleTrials(Device& device, Stream& stream, StepGraphs& graphs, const PaddingTable& padding,
             const Options& options, RunPadding run)
      : device_(device),
        stream_(stream),
        graphs_(graphs),
        padding_(padding),
        options_(options),
        run_(std::move(run)) {}

  // One run. False: nothing is left to be tried. REQUIRES: no step is in flight
  Result<bool> run_one();

 private:
  Result<bool> try_size();
  Result<bool> try_adapters();
  Result<bool> try_full_step();
  void record_sizes_that_pay();

  Device& device_;
  Stream& stream_;
  StepGraphs& graphs_;
  const PaddingTable& padding_;
  const Options options_;
  const RunPadding run_;
  std::vector<PaddedStepCost> costs_;  // of the sizes that were tried
  int runs_ = 0;                       // of the size that is tried now
  bool sizes_tried_ = false;
  size_t adapter_sizes_tried_ = 0;
  int full_steps_tried_ = 0;
};

}  // namespace headrace
