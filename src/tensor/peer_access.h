// GPUs of one host that reach each other's memory (NVLink, or PCIe peer access).
#pragma once

#include "base/status.h"

namespace headrace {

// From now on kernels and copies of GPU `from` reach the memory of GPU `to`. False: nothing links
// the two; copies between them then go through the host's memory.
Result<bool> reach_peer(int from, int to);

}  // namespace headrace
