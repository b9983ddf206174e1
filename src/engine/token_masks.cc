#include "engine/token_masks.h"

#include "base/check.h"

namespace headrace {

Result<TokenMasks> TokenMasks::create(Device& device, int32_t count, int32_t vocabulary,
                                      int steps) {
  TokenMasks masks(token_mask_words(vocabulary), steps);
  for (Buffer& host : masks.host_) {
    HR_ASSIGN_OR_RETURN(host, device.allocate_host(bytes(count, vocabulary)));
  }
  HR_ASSIGN_OR_RETURN(masks.device_, device.allocate(bytes(count, vocabulary)));
  return masks;
}

std::span<uint32_t> TokenMasks::on_host(int32_t index) const {
  const int64_t first = index * words_ * static_cast<int64_t>(sizeof(uint32_t));
  CHECK(index >= 0 && first < host().size());
  return {reinterpret_cast<uint32_t*>(host().data() + first), static_cast<size_t>(words_)};
}

void TokenMasks::upload(Stream& stream, int32_t count) {
  if (count == 0) return;
  stream.copy_in(device_.data(), host().data(),
                 count * words_ * static_cast<int64_t>(sizeof(uint32_t)));
}

}  // namespace headrace
