#include "engine/scratch_poison.h"

#include <algorithm>
#include <utility>

namespace headrace {
namespace {

constexpr size_t kPoisonBytes = 1 << 20;

}  // namespace

Result<ScratchPoison> ScratchPoison::create(Device& device, Stream& stream) {
  const std::vector<std::byte> nans(kPoisonBytes, std::byte{0xff});  // NaN in every float type
  HR_ASSIGN_OR_RETURN(Buffer buffer, device.allocate(kPoisonBytes));
  stream.copy_in(buffer.data(), nans.data(), kPoisonBytes);
  HR_RETURN_IF_ERROR(stream.synchronize());
  return ScratchPoison(std::move(buffer));
}

void ScratchPoison::start(Stream& stream) const {
  for (const std::span<std::byte> memory : covered_) {
    for (size_t first = 0; first < memory.size(); first += kPoisonBytes) {
      stream.copy(memory.data() + first, nans_.data(),
                  static_cast<int64_t>(std::min(kPoisonBytes, memory.size() - first)));
    }
  }
}

}  // namespace headrace
