// Which items (decode tile x key head) the thread blocks of a decode kernel are given.
#pragma once

#include <cstdint>

#include "gpu/host_device.h"

namespace headrace {

// The second item of a block whose first has the block's number. As tiles come longest first, those
// that begin with a long one go on with a short one; and no block has a third before each has its
// second.
HEADRACE_HOST_DEVICE constexpr int32_t second_decode_item(int32_t block, int32_t blocks) {
  return 2 * blocks - 1 - block;
}

}  // namespace headrace
