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
  // 8-bit floats without scales, e4m3: what is beyond +-448 becomes that. On a GPU alone, where the
  // numbers of a head of a block lie as column_place() says
  // (docs/decisions/0063-fp8-kv-on-a-gpu.md).
  kFp8,
  // 8-bit integers, and for each token and head one scale in BF16. On a GPU alone, in the places of
  // kFp8 (docs/decisions/0078-integers-of-keys-and-values-on-a-gpu.md).
  kInt8Head,
  // 4-bit integers, -8 to 7, and a scale in BF16, of which the number of the largest magnitude is
  // -8 steps: for each kKvGroup components, on a CPU alone.
  kInt4,
  // The same with a scale for each head, on a GPU alone. Keys are kept, and queries asked, as a
  // Hadamard transform of their heads, which leaves their products as they are and shares out what
  // is large (docs/decisions/0078-integers-of-keys-and-values-on-a-gpu.md).
  kInt4Head,
};

inline constexpr int32_t kKvGroup = 32;  // components of kInt8 and kInt4 that share a scale; the
                                         // last may be fewer

inline constexpr int32_t kKvColumn = 16;
// Of 4 bits a column is 32 components, two a byte, the first in the lower half: 16 bytes a token.
inline constexpr int32_t kKvColumnOf4Bits = 32;

// The byte of component d of a token in a head of `dim` components: [d / 16][token][16], so that a
// column of a page of 16 tokens is 256 bytes in a row, from which a warp loads operands of the
// tensor cores without bank conflicts. The last column is narrower where 16 does not divide dim.
#ifdef __CUDACC__  // kernels call it, too
__host__ __device__
#endif
    constexpr int64_t
    column_place(int32_t dim, int32_t block_tokens, int64_t token, int32_t d) {
  const int32_t first = d / kKvColumn * kKvColumn;
  const int32_t width = dim - first < kKvColumn ? dim - first : kKvColumn;
  return int64_t{first} * block_tokens + token * width + (d - first);
}

}  // namespace headrace
