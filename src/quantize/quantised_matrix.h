// A matrix as a format of files has it, and the values that it then stands for.
#pragma once

#include <variant>
#include <vector>

#include "quantize/integer_matrix.h"
#include "tensor/dtype.h"

namespace headrace {

// Rows of a GGUF block type.
struct BlockMatrix {
  DType dtype = DType::kQ8_0;
  int64_t rows = 0, columns = 0;
  std::vector<std::byte> bytes;
};

using QuantisedMatrix = std::variant<IntegerMatrix, BlockMatrix>;

Matrix dequantise(ThreadPool& pool, const QuantisedMatrix& matrix);

// The same values as Q4_0. REQUIRES: 4 bits, symmetric, groups of 32, scales of f16
BlockMatrix as_q4_0(const IntegerMatrix& matrix);

}  // namespace headrace
