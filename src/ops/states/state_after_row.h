// What the kernels of states on a CPU are told of saves. Plain data, no inline functions: it is
// read by files for one instruction set.
#pragma once

#include <cstdint>

namespace headrace {

// Behind this row of the sequence's in the step, the state is copied there.
struct StateAfterRow {
  int64_t row;
  float* state;  // as the kernel's own: of a head, or of some channels
};

}  // namespace headrace
