// What sigmoid_gate hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

namespace headrace {

struct SigmoidGateRow {
  float* x;           // [columns]
  const float* gate;  // [columns / of_gate]
  int64_t columns;
  int64_t of_gate;
  bool softplus;
};

void sigmoid_gate_row_avx512(const SigmoidGateRow& row);  // sigmoid_gate_cpu_avx512.cc
void sigmoid_gate_row_avx2(const SigmoidGateRow& row);    // sigmoid_gate_cpu_avx2.cc

}  // namespace headrace
