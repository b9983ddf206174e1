// Who still waits for a first step. The engine tells how many requests wait, not which; it serves
// first come, first served, so the ones that wait are the last that came.
#pragma once

#include <cstdint>
#include <iterator>
#include <mutex>
#include <set>

namespace headrace {

// Any thread.
class WaitingLine {
 public:
  uint64_t enter() {
    std::lock_guard lock(mutex_);
    places_.insert(places_.end(), next_);
    return next_++;
  }
  void leave(uint64_t place) {
    std::lock_guard lock(mutex_);
    places_.erase(place);
  }
  // `waiting`: requests in the engine's queue now.
  bool is_waiting(uint64_t place, int32_t waiting) const {
    std::lock_guard lock(mutex_);
    const auto it = places_.find(place);
    return it != places_.end() && std::distance(it, places_.end()) <= waiting;
  }

 private:
  mutable std::mutex mutex_;
  std::set<uint64_t> places_;
  uint64_t next_ = 1;  // 0 is nobody's place
};

}  // namespace headrace
