// The body of the layer_norm kernels. Included after vec16_avx512.h or vec16_avx2.h.
//
// The mean is found in two steps, so that floats suffice: a first one, and what the distances from
// it say that it is off by. Lane l sums columns l, l + 16, ...: one order whatever the batch.
#pragma once

#include "ops/rows/layer_norm_rows.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Adds `scale * residual` to `x` in place, if there is a residual; returns the sum of the result.
float add_residual_and_sum(float* x, const float* residual, float scale, int64_t columns) {
  Vec16 sum = zero();
  for (int64_t i = 0; i < columns; i += 16) {
    const int64_t left = columns - i;
    Vec16 value = load_up_to(x + i, left, 0.0f);
    if (residual != nullptr) {
      value = fma(load_up_to(residual + i, left, 0.0f), broadcast(scale), value);
      store_up_to(x + i, value, left);
    }
    sum = add(sum, value);
  }
  return sum_of(sum);
}

struct Moments {
  float rest;     // of the mean, beside the first one
  float inverse;  // 1 / sqrt(variance + eps)
};

Moments moments_about(float mean, const float* x, int64_t columns, float eps) {
  Vec16 sum = zero(), squares = zero();
  for (int64_t i = 0; i < columns; i += 16) {
    const Vec16 distance = sub(load_up_to(x + i, columns - i, mean), broadcast(mean));
    sum = add(sum, distance);
    squares = fma(distance, distance, squares);
  }
  const auto count = static_cast<double>(columns);
  const double rest = static_cast<double>(sum_of(sum)) / count;
  const double variance = static_cast<double>(sum_of(squares)) / count - rest * rest;
  const __m128d root = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(variance + eps));
  return {static_cast<float>(rest), static_cast<float>(1.0 / _mm_cvtsd_f64(root))};
}

void normalise(const LayerNormRows& a, const float* x, float mean, Moments moments, float* out) {
  for (int64_t i = 0; i < a.columns; i += 16) {
    const int64_t left = a.columns - i;
    const Vec16 distance =
        sub(sub(load_up_to(x + i, left, 0.0f), broadcast(mean)), broadcast(moments.rest));
    store_up_to(out + i,
                fma(mul(distance, broadcast(moments.inverse)), load_up_to(a.weight + i, left, 0.0f),
                    load_up_to(a.bias + i, left, 0.0f)),
                left);
  }
}

void layer_norm_rows(const LayerNormRows& a) {
  for (int64_t t = 0; t < a.rows; ++t) {
    float* x = a.x + t * a.x_stride;  // [columns]
    const float* residual = a.residual == nullptr ? nullptr : a.residual + t * a.residual_stride;
    const float sum = add_residual_and_sum(x, residual, a.residual_scale, a.columns);
    const float mean = sum / static_cast<float>(a.columns);
    normalise(a, x, mean, moments_about(mean, x, a.columns, a.eps), a.out + t * a.out_stride);
  }
}

}  // namespace
}  // namespace headrace
