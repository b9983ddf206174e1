// Events in virtual time, for simulations.
#pragma once

#include <cstdint>
#include <functional>
#include <map>
#include <utility>

#include "base/clock.h"

namespace headrace {

class VirtualTime {
 public:
  void after(double seconds, std::function<void()> task) {
    queue_.emplace(std::pair(clock.now_ns() + static_cast<int64_t>(seconds * 1e9), serial_++),
                   std::move(task));
  }
  // The next event. False: there is none.
  bool step() {
    if (queue_.empty()) return false;
    auto next = queue_.extract(queue_.begin());
    clock.advance_ns(next.key().first - clock.now_ns());
    ++events;
    next.mapped()();
    return true;
  }
  double now() const { return clock.now_seconds(); }

  VirtualClock clock;
  int64_t events = 0;

 private:
  std::map<std::pair<int64_t, uint64_t>, std::function<void()>> queue_;
  uint64_t serial_ = 0;
};

}  // namespace headrace
