// Memory of this process as tests see it.
#pragma once

#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <cstddef>
#include <fstream>
#include <functional>
#include <thread>

namespace headrace {

// A sanitizer's own memory is many times the program's: there nothing is said of it.
#ifdef HEADRACE_SANITIZED
inline constexpr bool kMemoryIsTold = false;
#else
inline constexpr bool kMemoryIsTold = true;
#endif

// In memory now, in bytes.
inline size_t resident_bytes() {
  std::ifstream statm("/proc/self/statm");
  size_t pages = 0, resident = 0;
  statm >> pages >> resident;
  return resident * static_cast<size_t>(::sysconf(_SC_PAGESIZE));
}

// The most that was in memory while `work` ran above what was there before, as a thread beside it
// sees it.
inline size_t resident_growth(const std::function<void()>& work) {
  const size_t before = resident_bytes();
  size_t most = before;
  std::atomic<bool> done{false};
  std::thread watch([&] {
    while (!done) most = std::max(most, resident_bytes());
  });
  work();
  done = true;
  watch.join();
  return most - before;
}

}  // namespace headrace
