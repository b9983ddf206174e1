#include "engine/poison.h"

#include <algorithm>
#include <utility>
#include <vector>

namespace headrace {

Result<Poison> Poison::create(Device& device, Stream& stream) {
  const std::vector<std::byte> nans(1 << 20, std::byte{0xff});
  const auto bytes = static_cast<int64_t>(nans.size());
  HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(bytes));
  stream.copy_in(buffer.data(), nans.data(), bytes);
  HR_RETURN_IF_ERROR(stream.synchronize());
  return Poison(std::move(buffer));
}

void Poison::fill(Stream& stream, std::span<std::byte> memory) const {
  while (!memory.empty()) {
    const size_t bytes = std::min(memory.size(), static_cast<size_t>(nans_.size()));
    stream.copy(memory.data(), nans_.data(), static_cast<int64_t>(bytes));
    memory = memory.subspan(bytes);
  }
}

}  // namespace headrace
