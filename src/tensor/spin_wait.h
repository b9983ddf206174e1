// Waiting for a word that another thread changes: looks for a while, then sleeps in the kernel.
#pragma once

#include <immintrin.h>

#include <atomic>
#include <cstdint>

namespace headrace {

// Waits until `value` is not `old`: looks `spins` times, some 40 cycles each, then sleeps. Returns
// what it is. Who changes it does so by a read-modify-write and notifies: a plain store may pass
// the look at who sleeps, which the notification begins with.
inline uint32_t spin_wait(const std::atomic<uint32_t>& value, uint32_t old, int spins) {
  uint32_t now = value.load(std::memory_order_acquire);
  for (int i = 0; now == old && i < spins; ++i) {
    _mm_pause();
    now = value.load(std::memory_order_acquire);
  }
  if (now != old) return now;
  value.wait(old, std::memory_order_acquire);
  return value.load(std::memory_order_acquire);
}

}  // namespace headrace
