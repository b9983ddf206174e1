// Views of some columns of rows.
#pragma once

#include "tensor/tensor_view.h"

namespace headrace {

// Columns [first, first + count) of `rows`, at their stride.
template <class Byte>
BasicTensorView<Byte> column_range(const BasicTensorView<Byte>& rows, int64_t first,
                                   int64_t count) {
  CHECK(first >= 0 && first + count <= rows.columns());
  return {rows.data + first * dtype_info(rows.dtype).block_bytes, rows.dtype,
          Shape{rows.rows(), count}, rows.row_stride};
}

}  // namespace headrace
