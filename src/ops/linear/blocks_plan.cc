#include <algorithm>

#include "ops/linear/blocks.h"

namespace headrace {

int64_t unpacked_rows(const LinearWeight& weight) {
  // What is unpacked lies in the L2 cache when it is multiplied.
  constexpr int64_t kBytesMax = 32 << 20;
  // Of fewer the library's products are slow.
  constexpr int64_t kRowsMin = 2048;
  const int64_t rows = kBytesMax / (2 * weight.k()) / kRowsMin * kRowsMin;
  return std::min(std::max(rows, kRowsMin), weight.n());
}

int64_t unpacked_bytes(const LinearWeight& weight) {
  return 2 * unpacked_rows(weight) * weight.k();
}

int64_t arranged_bytes(int64_t m, const LinearWeight& weight) {
  const int64_t units = (std::min(m, kBlocksSlabRows) + kArrangedRows - 1) / kArrangedRows;
  const int64_t rows = units * kArrangedRows;
  return rows * weight.k() * 2 + rows / 8 * (weight.k() / 32) * kArrangedSumBytes;
}

}  // namespace headrace
