// ScratchPoison: makes scratch memory NaN before each step (tests), so that a kernel that reads
// what no kernel of its step wrote meets a NaN.
#pragma once

#include <cstddef>
#include <span>
#include <vector>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class ScratchPoison {
 public:
  static Result<ScratchPoison> create(Device& device, Stream& stream);

  // `scratch` is poisoned from now on; its memory outlives this.
  void cover(const Buffer& scratch) {
    covered_.emplace_back(scratch.data(), static_cast<size_t>(scratch.size()));
  }
  void start(Stream& stream) const;

 private:
  explicit ScratchPoison(Buffer nans) : nans_(std::move(nans)) {}

  Buffer nans_;
  std::vector<std::span<std::byte>> covered_;
};

}  // namespace headrace
