// For the tests of CUDA kernels that go over rows: the cases of all of them.
#pragma once

#include <string>

#include "ops/cuda_fixture.h"

namespace headrace {

inline constexpr DType kTypes[] = {DType::kF32, DType::kF16, DType::kBF16};
inline constexpr int64_t kColumns[] = {1, 7, 64, 100, 576, 1000, 2049};

inline std::string label(std::string_view kernel, DType dtype, int64_t rows, int64_t columns) {
  return std::string(kernel) + " " + std::string(dtype_name(dtype)) + " " +
         Shape{rows, columns}.to_string();
}

// Calls body(dtype, rows, columns, gap) for every case.
template <class Body>
void for_each_case(const Body& body) {
  for (const DType dtype : kTypes) {
    for (const int64_t columns : kColumns) {
      for (const int64_t rows : {1, 3, 70}) {
        for (const int64_t gap : {0, 3, 8}) body(dtype, rows, columns, gap);
      }
    }
  }
}

}  // namespace headrace
