// FP8 numbers, e4m3 (a sign, 4 bits of exponent, 3 of mantissa; no infinities): what four of them
// in a register are in 16 bits, exactly, and back.
#pragma once

#include <cuda_bf16.h>
#include <cuda_fp16.h>
#include <cuda_fp8.h>

#include <cstdint>

namespace headrace::gpu {

inline constexpr float kE4m3Max = 448.0f;

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

// The same times a factor, in fewer instructions: of BF16 2^-120, exponent and mantissa going where
// BF16 has them. NaN becomes 480: weights have none (the scale of their row says it). What numbers
// are multiplied by makes up for 2^100 of it beforehand (from_e4m3_before), sums for the rest
// afterwards.
template <class T>
__device__ __forceinline__ uint2 from_e4m3_unscaled(uint32_t four);
template <>
__device__ __forceinline__ uint2 from_e4m3_unscaled<__half>(uint32_t four) {
  return from_e4m3<__half>(four);
}
template <>
__device__ __forceinline__ uint2 from_e4m3_unscaled<__nv_bfloat16>(uint32_t four) {
  const auto pair = [](uint32_t bytes) {
    return (bytes >> 4 & 0x07f007f0u) | (bytes & 0x80008000u);
  };
  return {pair(__byte_perm(four, 0, 0x1404)), pair(__byte_perm(four, 0, 0x3424))};
}
template <class T>
__device__ __forceinline__ uint32_t from_e4m3_before(uint32_t pair);
template <>
__device__ __forceinline__ uint32_t from_e4m3_before<__half>(uint32_t pair) {
  return pair;
}
// Numbers from 2^27 on would become infinite.
template <>
__device__ __forceinline__ uint32_t from_e4m3_before<__nv_bfloat16>(uint32_t pair) {
  constexpr uint32_t kFactor = 0x71807180;  // 2^100, twice
  uint32_t product;
  asm("mul.rn.bf16x2 %0, %1, %2;" : "=r"(product) : "r"(pair), "r"(kFactor));
  return product;
}
template <class T>
inline constexpr float kFromE4m3After = 1.0f;
template <>
inline constexpr float kFromE4m3After<__nv_bfloat16> = 0x1p20f;

// Rounded to the nearest, at most kE4m3Max; `a` in the lowest byte.
__device__ __forceinline__ uint32_t to_e4m3(float a, float b, float c, float d) {
  const uint32_t low = __nv_cvt_float2_to_fp8x2({a, b}, __NV_SATFINITE, __NV_E4M3);
  const uint32_t high = __nv_cvt_float2_to_fp8x2({c, d}, __NV_SATFINITE, __NV_E4M3);
  return low | high << 16;
}

}  // namespace headrace::gpu
