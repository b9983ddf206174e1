// Exact, scalar conversion of rows between float and every readable type: the meaning of the block
// formats, against which packed kernels are tested, and what dummy weights are made with.
#pragma once

#include <cstddef>
#include <span>

#include "tensor/tensor_view.h"

namespace headrace {

// out[i] = element i of the row. Bit-equal to ggml's reference (one multiply, one add, in float).
// REQUIRES: packed.size() == row_bytes(dtype, out.size())
void dequantise_row(DType dtype, std::span<const std::byte> packed, std::span<float> out);

// Row i of a view of rank 1 or 2, into out[view.columns()].
void dequantise_row(const ConstTensorView& view, int64_t i, float* out);

// The inverse, rounded as ggml's reference does: scales to the nearest half, quants to the nearest
// step (half away from zero); Q4_K as quantise_q4_k.h says. Of block types Q8_0, Q4_0, Q4_1 and
// Q4_K; other ones, and plain integers, are only read: CHECK. REQUIRES: packed.size() ==
// row_bytes(dtype, row.size()), finite values below half's range in blocks
void quantise_row(DType dtype, std::span<const float> row, std::span<std::byte> packed);

}  // namespace headrace
