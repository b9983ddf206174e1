// Sums over a warp and over a block, in one order whatever the data: the same bits every time. A
// maximum that keeps NaN.
#pragma once

namespace headrace::gpu {

inline constexpr int kWarpThreads = 32;

// The larger of two; NaN if one is.
__device__ __forceinline__ float max_or_nan(float a, float b) {
  float larger;
  asm("max.NaN.f32 %0, %1, %2;" : "=f"(larger) : "f"(a), "f"(b));
  return larger;
}

// The sum over the 32 lanes, on every lane.
__device__ __forceinline__ float warp_sum(float value) {
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

// The sum over a block of kThreads threads, on every thread. All threads call it together; a second
// call needs a __syncthreads() in between.
template <int kThreads>
__device__ __forceinline__ float block_sum(float value) {
  static_assert(kThreads % kWarpThreads == 0 && kThreads <= kWarpThreads * kWarpThreads);
  constexpr int kWarps = kThreads / kWarpThreads;
  __shared__ float partial[kWarps];
  const int lane = static_cast<int>(threadIdx.x) % kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / kWarpThreads;
  value = warp_sum(value);
  if (lane == 0) partial[warp] = value;
  __syncthreads();
  return warp_sum(lane < kWarps ? partial[lane] : 0.0f);
}

}  // namespace headrace::gpu
