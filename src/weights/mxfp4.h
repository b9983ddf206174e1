// MXFP4 (Rouhani et al., 2023; OCP): blocks of 32 numbers of 4 bits (e2m1: 0, 1/2, 1, 3/2, 2, 3, 4,
// 6 and their negatives) under a scale that is a power of two, 2^(byte - 127). A block is read as
// one of E2M1 (tensor/dtype.h) that has the same numbers: integers up to 12 times half the scale,
// wherever that is an f16 number (2^-24 to 2^15).
#pragma once

#include <algorithm>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

inline constexpr int64_t kMxfp4Columns = 32;
inline constexpr int64_t kMxfp4NibbleBytes = 16;

// Where the numbers of a block's bytes stand.
enum class Mxfp4Order : uint8_t {
  kNeighbours,  // byte i has columns 2 i and 2 i + 1 (Hugging Face files)
  kHalves,      // i and i + 16 (GGUF)
};

struct Mxfp4Block {
  uint8_t scale;
  const std::byte* nibbles;  // [16]
};

// Whether E2M1 has the block's numbers as they are.
bool fits_e2m1(const Mxfp4Block& block);
// REQUIRES: fits_e2m1(block). out: one block of E2M1
void mxfp4_to_e2m1(const Mxfp4Block& block, Mxfp4Order order, std::byte* out);
// Any block. out: [32] f32
void mxfp4_to_float(const Mxfp4Block& block, Mxfp4Order order, std::byte* out);

// Columns [first, first + columns) of a row, whose block `block_of(b)` is: blocks of E2M1, or f32,
// for which they may begin and end within a block.
template <class BlockOf>
std::byte* read_mxfp4_columns(const BlockOf& block_of, Mxfp4Order order, DType type, int64_t first,
                              int64_t columns, std::byte* out) {
  std::byte floats[kMxfp4Columns * sizeof(float)];
  for (int64_t c = first; c < first + columns;) {
    const Mxfp4Block block = block_of(c / kMxfp4Columns);
    const int64_t within = c % kMxfp4Columns;
    const int64_t count = std::min(kMxfp4Columns - within, first + columns - c);
    if (type == DType::kE2M1) {
      mxfp4_to_e2m1(block, order, out);
    } else {
      mxfp4_to_float(block, order, floats);
      std::copy_n(floats + within * 4, count * 4, out);
    }
    out += *row_bytes(type, count);
    c += count;
  }
  return out;
}

}  // namespace headrace
