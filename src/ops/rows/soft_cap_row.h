// What soft_cap hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/rows/soft_cap.h"

namespace headrace {

struct SoftCapRow {
  float* x;  // [count], in place
  int64_t count;
  float cap;
  CapKind kind;
};

void soft_cap_row_avx512(const SoftCapRow& row);  // soft_cap_cpu_avx512.cc
void soft_cap_row_avx2(const SoftCapRow& row);    // soft_cap_cpu_avx2.cc

}  // namespace headrace
