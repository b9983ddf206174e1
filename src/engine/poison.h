// Poison: makes memory of a device NaN (tests), so that what reads memory that nothing may read
// meets one.
#pragma once

#include <cstddef>
#include <span>

#include "base/status.h"
#include "tensor/device.h"

namespace headrace {

class Poison {
 public:
  static Result<Poison> create(Device& device, Stream& stream);
  // Every bit is set: NaN in every float type, that of scales among them. In the stream's order.
  void fill(Stream& stream, std::span<std::byte> memory) const;

 private:
  explicit Poison(Buffer nans) : nans_(std::move(nans)) {}

  Buffer nans_;
};

}  // namespace headrace
