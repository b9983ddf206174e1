// StepArena: what the host has to tell the device for one step, in one copy. The host fills
// page-locked memory (one of two, so that it writes step n + 1 while n is on its way); the device
// side is one buffer at a fixed address, which the stream's order protects.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class StepArena {
 public:
  static constexpr int64_t kAlignment = 256;

  static Result<StepArena> create(Device& device, int64_t bytes);

  // Begins a step. REQUIRES: the step before the last has ended on the device
  void start_step() {
    turn_ = 1 - turn_;
    used_ = 0;
  }
  // Makes room for `bytes` in this step. Allocates only where a step is larger than was planned at
  // start (logit biases by the thousand), after all work on the stream; true: addresses have
  // changed.
  Result<bool> reserve(Stream& stream, int64_t bytes);

  // Memory for the host to fill; lives until the next step but one.
  template <class T>
  std::span<T> take(size_t count) {
    const int64_t first = (used_ + kAlignment - 1) / kAlignment * kAlignment;
    const auto bytes = static_cast<int64_t>(count * sizeof(T));
    CHECK_MSG(first + bytes <= device_.size(), "a step's arena is smaller than its parts");
    used_ = first + bytes;
    return {reinterpret_cast<T*>(host().data() + first), count};
  }
  template <class T>
  std::span<T> put(std::span<const T> values) {
    const std::span<T> taken = take<T>(values.size());
    if (!values.empty()) std::memcpy(taken.data(), values.data(), values.size_bytes());
    return taken;
  }
  // Where a taken part is on the device.
  template <class T>
  std::span<T> on_device(std::span<T> taken) const {
    const auto* at = reinterpret_cast<const std::byte*>(taken.data());
    return {reinterpret_cast<T*>(device_.data() + (at - host().data())), taken.size()};
  }

  void upload(Stream& stream) { stream.copy_in(device_.data(), host().data(), used_); }

 private:
  StepArena(Device& device) : allocator_(&device) {}
  Status allocate(int64_t bytes);
  const Buffer& host() const { return host_[static_cast<size_t>(turn_)]; }

  Device* allocator_;
  Buffer host_[2];
  Buffer device_;
  int turn_ = 0;
  int64_t used_ = 0;
};

}  // namespace headrace
