// What a row of a sequence chooses by scores of what it sees: the order of choices, and where what
// was chosen lies.
#pragma once

#include <bit>
#include <cstdint>

#include "ops/attention/attention.h"

namespace headrace {

// A number of which the larger is chosen first: by its score, then by its position. Any bits have
// one, those of a NaN too.
inline uint64_t choice_of(float score, uint32_t position) {
  const float one_zero = score == 0.0f ? 0.0f : score;
  const auto bits = std::bit_cast<uint32_t>(one_zero);
  const uint32_t ascending = (bits & 0x80000000u) != 0 ? ~bits : bits | 0x80000000u;
  return uint64_t{ascending} << 32 | ~position;
}
inline uint32_t position_of(uint64_t choice) { return ~static_cast<uint32_t>(choice); }

// The place of a position that row r sees.
inline int32_t place_of(const AttentionSequence& sequence, int32_t r, int32_t position) {
  uint64_t path = sequence.path(r);
  if (path == 0 || position < sequence.tree_first()) return position;
  for (int32_t skip = position - sequence.tree_first(); skip > 0; --skip) path &= path - 1;
  return sequence.tree_first() + std::countr_zero(path);
}

}  // namespace headrace
