// What delta_rule hands to the kernels for one instruction set: plain data, no inline functions.
#pragma once

#include <cstdint>

#include "ops/states/state_after_row.h"

namespace headrace {

// One value head of one sequence; strides in floats.
struct DeltaHead {
  const float* q;  // [rows, dk], normalised, as k
  const float* k;
  const float* v;              // [rows, dv]
  const float* beta;           // [rows] of the head
  const float* decay;          // [rows]
  const float* z;              // [rows, dv]
  const float* norm;           // [dv]
  float* state;                // as DeltaRuleArgs has it
  float* out;                  // [rows, dv]
  const StateAfterRow* saves;  // ascending
  int64_t save_count;
  int64_t qkv_stride, gate_stride, z_stride, out_stride;
  int64_t rows;
  int64_t key_dim, value_dim;
  float norm_eps;
  bool begins;         // with zeros in place of the state
  bool sigmoid_gates;  // in place of SiLU's
};

void delta_head_avx512(const DeltaHead& head);  // delta_rule_cpu_avx512.cc
void delta_head_avx2(const DeltaHead& head);    // delta_rule_cpu_avx2.cc

}  // namespace headrace
