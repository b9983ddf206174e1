#include "quantize/quantised_matrix.h"

#include <cstring>

#include "tensor/half.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

Matrix dequantise_integers(ThreadPool& pool, const IntegerMatrix& matrix) {
  Matrix values(matrix.rows, matrix.columns);
  pool.parallel_for(matrix.rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) matrix.dequantise_row(r, values.row(r));
  });
  return values;
}

Matrix dequantise_block_rows(ThreadPool& pool, const BlockMatrix& matrix) {
  Matrix values(matrix.rows, matrix.columns);
  const ConstTensorView view(matrix.bytes.data(), matrix.dtype, Shape{matrix.rows, matrix.columns});
  pool.parallel_for(matrix.rows, 16, [&](int64_t first, int64_t last) {
    for (int64_t r = first; r < last; ++r) dequantise_row(view, r, values.row(r));
  });
  return values;
}

}  // namespace

Matrix dequantise(ThreadPool& pool, const QuantisedMatrix& matrix) {
  if (const auto* integers = std::get_if<IntegerMatrix>(&matrix)) {
    return dequantise_integers(pool, *integers);
  }
  return dequantise_block_rows(pool, std::get<BlockMatrix>(matrix));
}

BlockMatrix as_q4_0(const IntegerMatrix& matrix) {
  CHECK(matrix.grid.bits == 4 && matrix.grid.symmetric && matrix.grid.group == 32);
  constexpr int64_t kHalf = 16;
  const auto block_bytes = static_cast<size_t>(dtype_info(DType::kQ4_0).block_bytes);
  BlockMatrix blocks{DType::kQ4_0, matrix.rows, matrix.columns, {}};
  blocks.bytes.resize(block_bytes * static_cast<size_t>(matrix.rows * matrix.groups()));
  std::byte* at = blocks.bytes.data();
  for (int64_t r = 0; r < matrix.rows; ++r) {
    for (int64_t g = 0; g < matrix.groups(); ++g, at += block_bytes) {
      const uint16_t scale = float_to_half(matrix.scale(r, g).scale);
      std::memcpy(at, &scale, sizeof scale);
      const int8_t* const q = matrix.row(r) + 2 * kHalf * g;
      for (int64_t j = 0; j < kHalf; ++j) {
        at[2 + j] = static_cast<std::byte>((q[j] + 8) | (q[j + kHalf] + 8) << 4);
      }
    }
  }
  return blocks;
}

}  // namespace headrace
