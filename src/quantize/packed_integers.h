// Integers of 4 or 8 bits in words of 32, as compressed-tensors packs them: of each its distance to
// the least, the first in the lowest bits; the last word of a run is filled up with zeros.
#pragma once

#include <cstdint>
#include <cstring>
#include <span>

#include "base/check.h"

namespace headrace {

inline int64_t packed_words(int64_t count, int32_t bits) { return (count * bits + 31) / 32; }

// values[i * step] for each i below `count`.
inline uint32_t packed_word(const int8_t* values, int64_t count, int64_t step, int32_t bits,
                            int64_t word) {
  const int64_t per_word = 32 / bits, first = word * per_word;
  const int32_t least = -(1 << (bits - 1));
  uint32_t packed = 0;
  for (int64_t i = 0; i < per_word && first + i < count; ++i) {
    packed |= static_cast<uint32_t>(values[(first + i) * step] - least) << (i * bits);
  }
  return packed;
}

inline int8_t unpacked_value(uint32_t word, int64_t index_in_word, int32_t bits) {
  const uint32_t mask = (1u << bits) - 1;
  const auto distance = static_cast<int32_t>((word >> (index_in_word * bits)) & mask);
  return static_cast<int8_t>(distance - (1 << (bits - 1)));
}

}  // namespace headrace
