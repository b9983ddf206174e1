// What one decode step starts on the GPU: launches and time by family of kernels, from the trace of
// a run whose sequences all decode in its middle.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "tensor/kernel_trace.h"

namespace headrace {

struct KernelFamily {
  std::string name;
  double launches = 0;      // a step
  double microseconds = 0;  // a step, of all of them
};

struct StepTrace {
  std::vector<KernelFamily> families;  // the most time first
  double launches = 0;                 // a step
  double launches_per_layer = 0;       // whole ones: what a step starts once for each layer
  double microseconds = 0;             // a step; kernels that overlap count twice
  double period = 0;                   // microseconds from step to step
};

// `runs` in order of their start, of a run of `steps` steps; the kTracedSteps in its middle are
// looked at. kCorrupt where no kernel was started once a step. REQUIRES: steps > kTracedSteps + 4
inline constexpr int32_t kTracedSteps = 16;
Result<StepTrace> trace_of_step(std::span<const KernelRun> runs, int32_t steps, int32_t layers);

Json to_json(const StepTrace& trace);
std::string to_text(const StepTrace& trace);

}  // namespace headrace
