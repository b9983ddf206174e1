// Time behind an interface, so that a virtual clock and a seed replay any run.
#pragma once

#include <atomic>
#include <cstdint>

namespace headrace {

class Clock {
 public:
  virtual ~Clock() = default;
  virtual int64_t now_ns() const = 0;  // monotonic; the origin means nothing. Any thread.
  double now_seconds() const { return static_cast<double>(now_ns()) * 1e-9; }
};

class SystemClock final : public Clock {
 public:
  int64_t now_ns() const override;
};

class VirtualClock final : public Clock {
 public:
  int64_t now_ns() const override { return now_.load(std::memory_order_relaxed); }
  void advance_ns(int64_t delta) { now_.fetch_add(delta, std::memory_order_relaxed); }

 private:
  std::atomic<int64_t> now_{0};
};

}  // namespace headrace
