// Scores and their softmax in base 2, as the attention kernels compute them.
#pragma once

#include <cuda_runtime.h>

#include "gpu/exponential.cuh"

namespace headrace::gpu {

inline constexpr float kLog2e = 1.4426950408889634f;

// q k' -> the score times log2(e).
struct ScoreScale {
  float factor;      // without a cap: score scale * log2(e)
  float cap_factor;  // 2 log2(e) scale / cap: exp(2 x) = 2^(cap_factor * q k')
  float cap;         // cap * log2(e); 0 = none

  __host__ __device__ static ScoreScale of(float scale, float soft_cap) {
    return {scale * kLog2e, soft_cap > 0 ? 2.0f * kLog2e * scale / soft_cap : 0.0f,
            soft_cap * kLog2e};
  }
  // cap * tanh(x), tanh x = 1 - 2 / (exp(2 x) + 1): off by 1e-7 cap at most (tanh.approx: 5e-4).
  __device__ __forceinline__ float capped(float product) const {
    return cap - __fdividef(2.0f * cap, exp2_fast(product * cap_factor) + 1.0f);
  }
};

// What is subtracted from scores whose largest is `largest`: that, or 0 where no key was seen
// (-inf - -inf would be NaN).
__device__ __forceinline__ float softmax_origin(float largest) {
  return largest == -INFINITY ? 0.0f : largest;
}

}  // namespace headrace::gpu
