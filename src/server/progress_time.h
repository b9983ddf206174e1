// Time that a peer has for bytes, and that bytes earn: one that is fast enough never runs out of
// it, and neither a length that is only announced nor a byte now and then gives it more.
#pragma once

#include <algorithm>
#include <chrono>
#include <cstddef>
#include <utility>

namespace headrace {

// One thread at a time.
class ProgressTime {
 public:
  using TimePoint = std::chrono::steady_clock::time_point;

  void begin(double seconds_max, TimePoint now) {
    *this = {};
    running_ = true;
    seconds_left_ = seconds_max_ = seconds_max;
    looked_ = now;
  }
  void stop() { running_ = false; }
  bool running() const { return running_; }

  void add(size_t bytes) { bytes_ += bytes; }
  size_t bytes() const { return bytes_; }  // since it began

  // Seconds that are left from now on, where so many bytes a second are fast enough; at most as
  // many as there were in the beginning.
  double look(double bytes_per_second_min, TimePoint now) {
    const double passed = std::chrono::duration<double>(now - looked_).count();
    const double earned = static_cast<double>(bytes_ - seen_) / bytes_per_second_min;
    seconds_left_ = std::clamp(seconds_left_ + earned - passed, 0.0, seconds_max_);
    looked_ = now;
    seen_ = bytes_;
    return seconds_left_;
  }

 private:
  bool running_ = false;
  double seconds_max_ = 0, seconds_left_ = 0;
  TimePoint looked_;
  size_t bytes_ = 0, seen_ = 0;
};

}  // namespace headrace
