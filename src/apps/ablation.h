// What `bench ablate` can switch off, and what it times then. A technique is a row of
// ablations(): its cases each run some work with it on and with it off. Off is what one would do
// without it, not a slowed-down copy.
#pragma once

#include <functional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "apps/model_stack.h"
#include "apps/op_profile.h"
#include "apps/workload.h"

namespace headrace {

// A model whose ops are watched and whose kernels can be chosen between two runs.
class AblationBench {
 public:
  // `hooks` are the stack's op_hooks, whose probe is `profile`.
  AblationBench(ModelStack& stack, OpHooks& hooks, OpProfile& profile)
      : stack_(stack), hooks_(hooks), profile_(profile) {}

  // What takes the place of the best kernels, until it is set again.
  void set_preferred(std::vector<std::string> kernels) { hooks_.preferred = std::move(kernels); }
  void set_unfused(bool unfused) { hooks_.unfused = unfused; }

  // Runs `items` at once on the idle engine. The calls of ops are in profile() then.
  Result<WorkloadResult> run(std::span<const WorkItem> items);
  const std::vector<OpTotal>& profile() const { return totals_; }
  // Whether the last run called a kernel of this name.
  bool ran(std::string_view kernel) const;

 private:
  ModelStack& stack_;
  OpHooks& hooks_;
  OpProfile& profile_;
  std::vector<OpTotal> totals_;
  uint64_t seed_ = 0;
};

// Seconds of a run; kUnsupported where the model has nothing that could be switched.
using AblationMeasure = std::function<Result<double>(AblationBench&)>;

struct AblationCase {
  std::string name;  // "prompt of 2048 tokens"
  std::string what;  // is timed
  AblationMeasure on, off;
};

struct Ablation {
  std::string_view id;         // "K1"
  std::string_view technique;  // one line
  std::string_view off;        // what runs instead
  std::vector<AblationCase> (*cases)();
};

std::span<const Ablation> ablations();
const Ablation* find_ablation(std::string_view id);  // or null

// The longest sequence and the most sequences of any case: what the engine must hold.
inline constexpr int32_t kAblationModelLen = 4200;
inline constexpr int32_t kAblationSequences = 64;

}  // namespace headrace
