// Loads and stores of several elements at once, and conversions between element types and float.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>

#include <cstdint>

namespace headrace::gpu {

// The widest access of one thread.
inline constexpr int kAccessBytes = 16;

// `kCount` consecutive elements in registers. Aligned so that up to 16 bytes move in one access.
template <class T, int kCount>
struct alignas(sizeof(T) * kCount < kAccessBytes ? sizeof(T) * kCount : kAccessBytes) Vector {
  T values[kCount];

  __device__ __forceinline__ static Vector load(const T* from) {
    return *reinterpret_cast<const Vector*>(from);
  }
  __device__ __forceinline__ void store(T* to) const { *reinterpret_cast<Vector*>(to) = *this; }
};

// 16 bytes that nothing writes during the kernel and no other block reads: L1 is left alone.
// REQUIRES: `from` on 16 bytes
__device__ __forceinline__ uint4 load_streamed(const void* from) {
  uint4 value;
  asm volatile("ld.global.nc.L1::no_allocate.v4.u32 {%0, %1, %2, %3}, [%4];"
               : "=r"(value.x), "=r"(value.y), "=r"(value.z), "=r"(value.w)
               : "l"(from));
  return value;
}

__device__ __forceinline__ float to_float(float value) { return value; }
__device__ __forceinline__ float to_float(__half value) { return __half2float(value); }
__device__ __forceinline__ float to_float(__nv_bfloat16 value) { return __bfloat162float(value); }

template <class T>
__device__ __forceinline__ T from_float(float value);
template <>
__device__ __forceinline__ float from_float<float>(float value) {
  return value;
}
template <>
__device__ __forceinline__ __half from_float<__half>(float value) {
  return __float2half_rn(value);
}
template <>
__device__ __forceinline__ __nv_bfloat16 from_float<__nv_bfloat16>(float value) {
  return __float2bfloat16_rn(value);
}

}  // namespace headrace::gpu
