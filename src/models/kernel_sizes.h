// Asking tables of kernels which sizes they take, without a tensor.
#pragma once

#include "tensor/tensor_view.h"

namespace headrace {

// A row of no data: kernels look at sizes, types and alignment.
inline TensorView row_of_no_data(DType dtype, int64_t columns) {
  return {nullptr, dtype, Shape{1, columns}};
}

// Below `size`, which does not fit; 0: none does.
template <class Fits>
int64_t largest_that_fits(int64_t size, const Fits& fits) {
  int64_t low = 0;
  for (int64_t high = size; high - low > 1;) {
    const int64_t middle = low + (high - low) / 2;
    (fits(middle) ? low : high) = middle;
  }
  return low;
}

}  // namespace headrace
