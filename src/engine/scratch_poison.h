// ScratchPoison: makes scratch memory NaN before each step (tests), so that a kernel that reads
// what no kernel of its step wrote meets a NaN.
#pragma once

#include <cstddef>
#include <span>
#include <utility>
#include <vector>

#include "engine/poison.h"

namespace headrace {

class ScratchPoison {
 public:
  explicit ScratchPoison(Poison poison) : poison_(std::move(poison)) {}

  // `scratch` is poisoned from now on; its memory outlives this.
  void cover(const Buffer& scratch) {
    covered_.emplace_back(scratch.data(), static_cast<size_t>(scratch.size()));
  }
  void start(Stream& stream) const {
    for (const std::span<std::byte> memory : covered_) poison_.fill(stream, memory);
  }

 private:
  Poison poison_;
  std::vector<std::span<std::byte>> covered_;
};

}  // namespace headrace
