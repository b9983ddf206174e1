// How often devices gave memory in this process: what a run must not change once it is ready.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

// Any thread. Buffers on a GPU and page-locked ones of the host; what libraries take for themselves
// is not in it.
inline std::atomic<int64_t>& allocation_count() {
  static std::atomic<int64_t> count{0};
  return count;
}

}  // namespace headrace
