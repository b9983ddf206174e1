// Whether an answer goes round in circles: it ends with the same few tokens again and again.
#pragma once

#include <cstdint>

#include "base/ids.h"

namespace headrace {

// Loops of `size_min` to `size_max` tokens, each of which stands `count_min` times at the end, one
// behind the other.
struct LoopLimits {
  int32_t size_max = 0;  // 0 = off
  int32_t size_min = 1;
  int32_t count_min = 2;  // >= 2

  bool on() const { return size_max > 0; }
};
inline constexpr int32_t kLoopTokensMax = 1024;  // of size_max

// Any thread. A text that does not repeat itself costs a comparison a size.
inline bool ends_in_loop(TokenSpan tokens, const LoopLimits& limits) {
  for (int32_t size = limits.size_min; size <= limits.size_max; ++size) {
    const int64_t all = int64_t{size} * limits.count_min;
    if (all > static_cast<int64_t>(tokens.size())) return false;
    const TokenSpan end = tokens.last(static_cast<size_t>(all));
    size_t at = end.size();
    while (at > static_cast<size_t>(size) && end[at - 1] == end[at - 1 - static_cast<size_t>(size)])
      --at;
    if (at == static_cast<size_t>(size)) return true;
  }
  return false;
}

}  // namespace headrace
