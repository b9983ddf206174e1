// How the numbers of a key or a value lie in the cache. Plain data: kernels of one instruction set
// include this.
#pragma once

#include <cstdint>

namespace headrace {

enum class KvFormat : uint8_t {
  kF32,
  kF16,
  kBF16,
  // 8-bit integers, and for each token, head and kKvGroup components one scale in BF16: the number
  // is integer x scale, which f32 holds exactly (docs/decisions/0037-kinds-of-kv.md).
  kInt8,
};

inline constexpr int32_t kKvGroup = 32;  // components that share a scale; the last may be fewer

}  // namespace headrace
