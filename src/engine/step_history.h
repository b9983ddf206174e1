// PastStep: what one step was, for whoever looks at the engine while it runs.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>
#include <vector>

#include "sched/step_plan.h"

namespace headrace {

struct PastStep {
  uint64_t number = 0;        // from 1, in the order in which steps end
  double age = 0;             // seconds since it began, when it was asked for
  double seconds = 0;         // from its plan to what it brought. Steps of a GPU overlap
  int32_t prompt_tokens = 0;  // of pieces of prompts
  int32_t decode_tokens = 0;  // of sequences that go on, with proposals
  int32_t sequences = 0;
};

// The last kKept steps. Not thread-safe.
class StepHistory {
 public:
  static constexpr size_t kKept = 512;

  // `began`: seconds on the clock that since() is asked with.
  void add(const StepPlan& plan, double began, double seconds);
  // Those that are kept of the steps behind number `after`, oldest first.
  std::vector<PastStep> since(uint64_t after, double now) const;

 private:
  uint64_t count_ = 0;
  std::array<PastStep, kKept> kept_{};  // age: when it began
};

}  // namespace headrace
