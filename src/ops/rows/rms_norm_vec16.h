// The body of the rms_norm kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/rows/rms_norm_rows.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Adds `scale * residual` to `x` in place, if there is a residual; returns the sum of the squares
// of the result. Lane l sums columns l, l + 16, ...: one order whatever the batch.
float add_residual_and_sum_squares(float* x, const float* residual, float scale, int64_t columns) {
  Vec16 sum = zero();
  for (int64_t i = 0; i < columns; i += 16) {
    const int64_t left = columns - i;
    Vec16 value = load_up_to(x + i, left, 0.0f);
    if (residual != nullptr) {
      value = fma(load_up_to(residual + i, left, 0.0f), broadcast(scale), value);
      store_up_to(x + i, value, left);
    }
    sum = fma(value, value, sum);
  }
  return sum_of(sum);
}

float inverse_rms(float sum_squares, int64_t columns, float eps) {
  const double mean = static_cast<double>(sum_squares) / static_cast<double>(columns);
  return static_cast<float>(1.0 /
                            _mm_cvtsd_f64(_mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(mean + eps))));
}

void scale(const float* x, const float* weight, float factor, int64_t columns, float* out) {
  for (int64_t i = 0; i < columns; i += 16) {
    const int64_t left = columns - i;
    const Vec16 scaled = mul(load_up_to(x + i, left, 0.0f), broadcast(factor));
    store_up_to(out + i, mul(scaled, load_up_to(weight + i, left, 0.0f)), left);
  }
}

void rms_norm_rows(const RmsNormRows& a) {
  for (int64_t t = 0; t < a.rows; ++t) {
    float* x = a.x + t * a.x_stride;  // [columns]
    const float* residual = a.residual == nullptr ? nullptr : a.residual + t * a.residual_stride;
    const float sum_squares =
        add_residual_and_sum_squares(x, residual, a.residual_scale, a.columns);
    scale(x, a.weight, inverse_rms(sum_squares, a.columns, a.eps), a.columns,
          a.out + t * a.out_stride);
  }
}

}  // namespace
}  // namespace headrace
