// The four threads that share a row of a product's sums (mma.cuh, wgmma.cuh).
#pragma once

#include <cuda_runtime.h>

#include <cstdint>

namespace headrace::gpu {

// values[i] of thread q of four becomes values[q] of thread i. `quarter`: q.
__device__ __forceinline__ void transpose_quad(uint32_t (&values)[4], int quarter) {
  const bool high = quarter & 2, odd = quarter & 1;
  const uint32_t a = __shfl_xor_sync(0xffffffffu, high ? values[0] : values[2], 2);
  const uint32_t b = __shfl_xor_sync(0xffffffffu, high ? values[1] : values[3], 2);
  if (high) {
    values[0] = a;
    values[1] = b;
  } else {
    values[2] = a;
    values[3] = b;
  }
  const uint32_t c = __shfl_xor_sync(0xffffffffu, odd ? values[0] : values[1], 1);
  const uint32_t d = __shfl_xor_sync(0xffffffffu, odd ? values[2] : values[3], 1);
  if (odd) {
    values[0] = c;
    values[2] = d;
  } else {
    values[1] = c;
    values[3] = d;
  }
}

}  // namespace headrace::gpu
