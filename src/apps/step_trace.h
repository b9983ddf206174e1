// What one decode step starts on the GPU: launches and time by family of kernels. Two runs that
// differ in nothing but the number of their steps are traced, so that what is left of the
// difference is those steps' alone.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
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
};

// `more` did `steps` steps more than `less`. REQUIRES: steps, layers > 0
StepTrace trace_of_step(std::span<const KernelRun> less, std::span<const KernelRun> more,
                        int32_t steps, int32_t layers);

Json to_json(const StepTrace& trace);
std::string to_text(const StepTrace& trace);

}  // namespace headrace
