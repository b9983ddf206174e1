// What the quantised block types mean: small integers, and a scale (and a minimum) for each part of
// 16 or 32 columns. Scalar and exact, the one place that knows the layouts of GGUF's blocks bit by
// bit (ggml's reference dequantisation, as the PyPI package `gguf` restates it), and of ours.
#pragma once

#include <array>
#include <cstddef>
#include <cstdint>

#include "tensor/dtype.h"

namespace headrace {

// The values of IQ4_NL and IQ4_XS by index.
inline constexpr std::array<int8_t, 16> kIq4Values = {-127, -104, -83, -65, -49, -35, -22, -10,
                                                      1,    13,   25,  38,  53,  69,  89,  113};

// The values of E2M1 by index: twice those of MXFP4.
inline constexpr std::array<int8_t, 16> kE2m1Values = {0, 1,  2,  3,  4,  6,  8,  12,
                                                       0, -1, -2, -3, -4, -6, -8, -12};

// One block: element c is scale[p] q[c] + minimum[p], p = c / part_columns, each operation rounded
// to float. Types without minima skip the addition (which would turn -0 into 0).
struct BlockQuants {
  int32_t columns;
  int32_t part_columns;
  bool has_minima;
  std::array<int8_t, kBlockElementsMax> q;  // zero points subtracted
  std::array<float, kBlockElementsMax / 16> scale;
  std::array<float, kBlockElementsMax / 16> minimum;
};

// REQUIRES: is_quantised(dtype), dtype_info(dtype).block_bytes bytes at `block`
void unpack_block(DType dtype, const std::byte* block, BlockQuants& out);

// The floats that a block stands for, into out[block.columns].
void dequantise_block(const BlockQuants& block, float* out);

}  // namespace headrace
