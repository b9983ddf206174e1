// The body of the sigmoid_gate kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/sigmoid_gate_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

template <bool kSoftplus>
Vec16 gated(Vec16 x, Vec16 gate) {
  if constexpr (kSoftplus) return mul(x, softplus(gate));
  return div(x, add(broadcast(1.0f), exp(sub(zero(), gate))));
}

template <bool kSoftplus>
void gate_columns(const SigmoidGateRow& row) {
  if (row.of_gate == 1) {
    for (int64_t i = 0; i < row.columns; i += 16) {
      const int64_t left = row.columns - i;
      const Vec16 gate = load_up_to(row.gate + i, left, 0.0f);
      store_up_to(row.x + i, gated<kSoftplus>(load_up_to(row.x + i, left, 0.0f), gate), left);
    }
    return;
  }
  for (int64_t first = 0; first < row.columns; first += row.of_gate) {
    const Vec16 gate = broadcast(row.gate[first / row.of_gate]);
    float* const x = row.x + first;
    for (int64_t i = 0; i < row.of_gate; i += 16) {
      const int64_t left = row.of_gate - i;
      store_up_to(x + i, gated<kSoftplus>(load_up_to(x + i, left, 0.0f), gate), left);
    }
  }
}

void sigmoid_gate_row(const SigmoidGateRow& row) {
  row.softplus ? gate_columns<true>(row) : gate_columns<false>(row);
}

}  // namespace
}  // namespace headrace
