// FP8 numbers, e4m3 (a sign, 4 bits of exponent, 3 of mantissa; no infinities): what four of them
// in a register are in 16 bits, exactly, and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace headrace::gpu {

inline constexpr float kE4m3Max = 448.0f;
inline constexpr float kE4m3ScaleMin = 0x1p-100f;  // of a row

// As float8_row_scale() (tensor/float8.h); NaN stays.
__device__ __forceinline__ float e4m3_row_scale(float largest) {
  const float scale = largest / kE4m3Max;
  return scale < kE4m3ScaleMin ? 1.0f : scale;
}

__device__ __forceinline__ float to_float(__nv_fp8_e4m3 value) { return static_cast<float>(value); }

// Four numbers as two pairs of T, in their order.
template <class T>
__device__ __forceinline__ uint2 from_e4m3(uint32_t four);
template <>
__device__ __forceinline__ uint2 from_e4m3<__half>(uint32_t four) {
  uint2 pairs;
  asm("{\n.reg .b16 low, high;\nmov.b32 {low, high}, %2;\n"
      "cvt.rn.f16x2.e4m3x2 %0, low;\ncvt.rn.f16x2.e4m3x2 %1, high;\n}\n"
      : "=r"(pairs.x), "=r"(pairs.y)
      : "r"(four));
  return pairs;
}
template <>
__device__ __forceinline__ uint2 from_e4m3<__nv_bfloat16>(uint32_t four) {
  const auto pair = [](uint32_t halves) {
    const float2 floats = __half22float2(*reinterpret_cast<const __half2*>(&halves));
    uint32_t result;
    asm("cvt.rn.bf16x2.f32 %0, %1, %2;" : "=r"(result) : "f"(floats.y), "f"(floats.x));
    return result;
  };
  const uint2 halves = from_e4m3<__half>(four);
  return {pair(halves.x), pair(halves.y)};
}

// Rounded to the nearest, at most kE4m3Max; `a` in the lowest byte.
__device__ __forceinline__ uint32_t to_e4m3(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

}  // namespace headrace::gpu
