// The body of the gated_norm kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/gated_norm_row.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

Vec16 silu_at(const GatedNormRow& row, int64_t i) {
  const Vec16 gate =
      mul(broadcast(row.gate_scale), load_up_to(row.gate + i, row.columns - i, 0.0f));
  return div(gate, add(broadcast(1.0f), exp(sub(zero(), gate))));
}

// What y is divided by, from its sum of squares.
Vec16 scale_of(const GatedNormRow& row, Vec16 squares) {
  const double mean = static_cast<double>(sum_of(squares)) / static_cast<double>(row.columns);
  const __m128d root = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(mean + row.eps));
  return broadcast(static_cast<float>(1.0 / _mm_cvtsd_f64(root)));
}

void gated_norm_row(const GatedNormRow& row) {
  Vec16 squares = zero();
  for (int64_t i = 0; i < row.columns && row.normalises; i += 16) {
    const int64_t left = row.columns - i;
    Vec16 y = load_up_to(row.x + i, left, 0.0f);
    if (row.gate_first) {
      y = mul(y, silu_at(row, i));
      store_up_to(row.x + i, y, left);
    }
    squares = fma(y, y, squares);
  }
  const bool gated = row.normalises && row.gate_first;  // already
  const Vec16 scale = row.normalises ? scale_of(row, squares) : broadcast(1.0f);
  for (int64_t i = 0; i < row.columns; i += 16) {
    const int64_t left = row.columns - i;
    Vec16 y = mul(load_up_to(row.x + i, left, 0.0f), scale);
    y = mul(y, load_up_to(row.weight + i, left, 0.0f));
    store_up_to(row.x + i, gated ? y : mul(y, silu_at(row, i)), left);
  }
}

}  // namespace
}  // namespace headrace
