// The body of the logit passes. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/sampling/logit_math.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

bool block_maxima(const float* row, int64_t count, float* block_max) {
  bool nan = false;
  for (int64_t first = 0; first < count; first += kLogitBlock) {
    Vec16 largest = broadcast(-__builtin_inff());
    for (int64_t i = first; i < first + kLogitBlock && i < count; i += 16) {
      const Vec16 values = load_up_to(row + i, count - i, -__builtin_inff());
      largest = max(largest, values);
      nan |= any_nan(values);
    }
    block_max[first / kLogitBlock] = largest_of(largest);
  }
  return nan;
}

void exp_weights(const float* row, int64_t count, float largest, float factor, float* weights,
                 float* block_sum) {
  for (int64_t first = 0; first < count; first += kLogitBlock) {
    Vec16 sum = zero();
    for (int64_t i = first; i < first + kLogitBlock && i < count; i += 16) {
      const Vec16 values = load_up_to(row + i, count - i, -__builtin_inff());
      const Vec16 weight = exp(mul(sub(values, broadcast(largest)), broadcast(factor)));
      store_up_to(weights + i, weight, count - i);
      sum = add(sum, weight);
    }
    block_sum[first / kLogitBlock] = sum_of(sum);
  }
}

}  // namespace
}  // namespace headrace
