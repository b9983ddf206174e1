// Eight-bit integers as what tensor cores multiply: four of them in a register are two pairs of
// F16, exactly. F16 has steps of 1 from 1024 to 2048: a byte behind 0x64 is 1024 and the byte, from
// which what makes it signed is taken with the 1024.
#pragma once

#include <cuda_fp16.h>

#include <cstdint>

namespace headrace::gpu {

namespace integer_pairs {

// The bytes that `kSelector` names, of four integers whose signs are flipped.
template <uint32_t kSelector>
__device__ __forceinline__ uint32_t pair_of(uint32_t flipped) {
  const uint32_t raised = __byte_perm(flipped, 0x64646464u, kSelector);
  const __half2 bias = __half2half2(__ushort_as_half(0x6480));  // 1024 + 128
  const __half2 pair = __hsub2(reinterpret_cast<const __half2&>(raised), bias);
  return reinterpret_cast<const uint32_t&>(pair);
}

}  // namespace integer_pairs

// Four integers in their order: 0 and 1, 2 and 3.
__device__ __forceinline__ uint2 from_int8(uint32_t four) {
  const uint32_t flipped = four ^ 0x80808080u;
  return {integer_pairs::pair_of<0x4140>(flipped), integer_pairs::pair_of<0x4342>(flipped)};
}
// 0 and 2, 1 and 3.
__device__ __forceinline__ uint2 from_int8_alternating(uint32_t four) {
  const uint32_t flipped = four ^ 0x80808080u;
  return {integer_pairs::pair_of<0x4240>(flipped), integer_pairs::pair_of<0x4341>(flipped)};
}

// Eight integers of 4 bits, of which 8 was added: 0 and 4, 1 and 5, 2 and 6, 3 and 7. A pair that
// lies 4 bits higher is 16 times as much behind the 1024.
__device__ __forceinline__ uint4 from_int4(uint32_t eight) {
  const auto low = [](uint32_t bits) {
    const uint32_t raised = (bits & 0x000f000fu) | 0x64006400u;
    const __half2 bias = __half2half2(__ushort_as_half(0x6408));  // 1024 + 8
    const __half2 pair = __hsub2(reinterpret_cast<const __half2&>(raised), bias);
    return reinterpret_cast<const uint32_t&>(pair);
  };
  const auto high = [](uint32_t bits) {
    const uint32_t raised = (bits & 0x00f000f0u) | 0x64006400u;
    const __half2 sixteenth = __half2half2(__ushort_as_half(0x2c00));
    const __half2 bias = __half2half2(__ushort_as_half(0xd480));  // -(1024 / 16 + 8)
    const __half2 pair = __hfma2(reinterpret_cast<const __half2&>(raised), sixteenth, bias);
    return reinterpret_cast<const uint32_t&>(pair);
  };
  return {low(eight), high(eight), low(eight >> 8), high(eight >> 8)};
}

}  // namespace headrace::gpu
