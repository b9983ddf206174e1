// How blocks_wide.h cuts K into steps; for its kernels and the test of the cut.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"
#include "ops/linear/blocks_wide.h"

namespace headrace {

// The last step of K begins where it is whole: of what it shares with the step before x is zeros.
HEADRACE_HOST_DEVICE int32_t wide_step_first_chunk(int32_t step, int32_t chunks) {
  return step * kWideStepChunks < chunks - kWideStepChunks ? step * kWideStepChunks
                                                           : chunks - kWideStepChunks;
}

}  // namespace headrace
