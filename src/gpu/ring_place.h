// A place in a ring of kCount slots, each with barriers: which slot, and the parity of its phase.
// Each thread that goes through the ring has one, on a device and in the tests of its barriers.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

template <int kCount>
struct RingPlace {
  int slot = 0;
  uint32_t parity = 0;

  HEADRACE_HOST_DEVICE constexpr void advance() {
    if (++slot == kCount) {
      slot = 0;
      parity ^= 1;
    }
  }
};

// The same in a ring whose slots are counted at run time.
struct RingTurn {
  int32_t slot = 0;
  uint32_t phase = 0;

  HEADRACE_HOST_DEVICE constexpr void next(int32_t slots) {
    if (++slot < slots) return;
    slot = 0;
    phase ^= 1;
  }
};

}  // namespace headrace
