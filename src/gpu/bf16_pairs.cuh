// Two bf16 in one register: one instruction for both.
#pragma once

#include <cuda_bf16.h>

#include <cstdint>

namespace headrace::gpu {

// min(max(a, low) + shift, high) of unsigned 16-bit halves, sums modulo 2^16.
__device__ __forceinline__ uint32_t clamp_pair(uint32_t a, uint32_t low, uint32_t shift,
                                               uint32_t high) {
  return __viaddmin_u16x2(__vimax3_u16x2(a, low, low), shift, high);
}
// All bits of the halves that are greater, or equal, as values.
__device__ __forceinline__ uint32_t pair_greater(uint32_t a, uint32_t b) {
  uint32_t mask;
  asm("set.gt.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
}
__device__ __forceinline__ uint32_t pair_equal(uint32_t a, uint32_t b) {
  uint32_t mask;
  asm("set.eq.u32.bf16x2 %0, %1, %2;" : "=r"(mask) : "r"(a), "r"(b));
  return mask;
}

}  // namespace headrace::gpu
