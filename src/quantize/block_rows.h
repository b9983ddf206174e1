// Rows of GGUF's block types by an importance matrix: each column's weight is how large its inputs
// are (the mean of their squares), and the scales of a block are those that lose least of what
// counts. Without one, large weights count more.
#pragma once

#include <optional>
#include <span>
#include <vector>

#include "quantize/matrix_math.h"
#include "tensor/dtype.h"

namespace headrace {

// Q8_0, Q4_0, Q4_1, Q5_0, Q5_1, Q4_K, Q5_K, Q6_K.
bool is_made_block_type(DType dtype);
// What a matrix of so many columns becomes where `wanted` was asked for: itself, or, where its
// blocks do not divide them, the next type of blocks of 32 (as llama-quantize has it); empty: no
// type.
std::optional<DType> block_type_for(DType wanted, int64_t columns);

// `importance` [columns] or empty. Rows one after the other, as a file has them.
// REQUIRES: is_made_block_type(dtype), whole blocks
std::vector<std::byte> quantise_blocks(ThreadPool& pool, const Matrix& weights, DType dtype,
                                       std::span<const float> importance);

}  // namespace headrace
