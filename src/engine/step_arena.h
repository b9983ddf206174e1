// StepArena: what the host has to tell the device for one step, in one copy. The host fills
// page-locked memory (one for each step in flight, so that it writes step n + 1 while n is on its
// way); the device side is one buffer at a fixed address, which the stream's order protects.
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>
#include <span>
#include <vector>

#include "base/check.h"
#include "base/status.h"
#include "tensor/arena_places.h"
#include "tensor/device.h"

namespace headrace {

class StepArena {
 public:
  // For so many steps in flight.
  static Result<StepArena> create(Device& device, int64_t bytes, int steps);

  // Begins a step. REQUIRES: the step that many steps before has ended on the device
  void start_step() {
    turn_ = (turn_ + 1) % host_.size();
    places_ = {};
  }
  bool fits(int64_t bytes) const { return bytes <= device_.size(); }
  // Makes room for `bytes` in this step. Allocates only where a step is larger than was planned at
  // start (logit biases by the thousand), after all work on the stream; addresses then change.
  Status reserve(Stream& stream, int64_t bytes);

  // Places of this step, to be filled by the host.
  ArenaPlaces& places() { return places_; }
  // A part's memory on the host; lives as long as the step is in flight.
  template <class T>
  std::span<T> on_host(ArenaPart<T> part) const {
    CHECK_MSG(part.first + part.bytes() <= device_.size(),
              "a step's arena is smaller than its parts");
    return {part.in(host().data()), part.count};
  }
  template <class T>
  std::span<T> on_device(ArenaPart<T> part) const {
    return {part.in(device_.data()), part.count};
  }

  // Writes `values` to the front of a part and `padding` to what is left of it.
  template <class T>
  void fill(ArenaPart<T> part, std::span<const T> values, T padding = {}) const {
    const std::span<T> to = on_host(part);
    std::copy(values.begin(), values.end(), to.begin());
    std::fill(to.begin() + static_cast<std::ptrdiff_t>(values.size()), to.end(), padding);
  }

  void upload(Stream& stream) { stream.copy_in(device_.data(), host().data(), places_.used()); }

 private:
  StepArena(Device& device, int steps) : allocator_(&device), host_(static_cast<size_t>(steps)) {}
  Status allocate(int64_t bytes);
  const Buffer& host() const { return host_[turn_]; }

  Device* allocator_;
  std::vector<Buffer> host_;
  Buffer device_;
  size_t turn_ = 0;
  ArenaPlaces places_;
};

}  // namespace headrace
