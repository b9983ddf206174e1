// The body of the sigmoid_gate kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/sigmoid_gate_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

void sigmoid_gate_row(const SigmoidGateRow& row) {
  for (int64_t i = 0; i < row.columns; i += 16) {
    const int64_t left = row.columns - i;
    const Vec16 e = exp(sub(zero(), load_up_to(row.gate + i, left, 0.0f)));
    const Vec16 gated = div(load_up_to(row.x + i, left, 0.0f), add(broadcast(1.0f), e));
    store_up_to(row.x + i, gated, left);
  }
}

}  // namespace
}  // namespace headrace
