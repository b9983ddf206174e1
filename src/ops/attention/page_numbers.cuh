// What the numbers of pages in device memory are, as kernels are made for them: of a step of 16
// components, how numbers become what tensor cores multiply; of a token's head, how its numbers are
// made.
#pragma once

#include <cuda_bf16.h>

#include <type_traits>

#include "gpu/float8.cuh"
#include "gpu/integers.cuh"
#include "gpu/vector.cuh"
#include "ops/attention/kv_view.h"

namespace headrace::gpu {

enum class PageNumbers : uint8_t {
  kPlain,  // 16-bit elements (or f32 ones), of the activations' type
  kFp8,    // KvFormat::kFp8
  kInt8,   // KvFormat::kInt8Head
};

template <PageNumbers kNumbers>
using PageNumbersOf = std::integral_constant<PageNumbers, kNumbers>;

// body(PageNumbersOf<...>{}) for the format of a layer's keys and values, which are alike.
template <class Body>
void with_page_numbers(const KvLayerView& kv, const Body& body) {
  if (kv.k_format == KvFormat::kFp8) return body(PageNumbersOf<PageNumbers::kFp8>{});
  if (kv.k_format == KvFormat::kInt8Head) return body(PageNumbersOf<PageNumbers::kInt8>{});
  body(PageNumbersOf<PageNumbers::kPlain>{});
}

// Numbers of a byte in columns (column_place()); behind those of a head, where they are `kScaled`,
// a scale in BF16 for each of its tokens.
template <PageNumbers kNumbers>
struct ByteNumbers {
  static_assert(kNumbers == PageNumbers::kFp8 || kNumbers == PageNumbers::kInt8);
  static constexpr bool kScaled = kNumbers == PageNumbers::kInt8;

  // Of one head of a block.
  __host__ __device__ static constexpr int64_t head_bytes(int32_t dim, int32_t block_tokens) {
    return int64_t{block_tokens} * (dim + (kScaled ? 2 : 0));
  }

  // Four numbers without their scale: 0 and 1, 2 and 3; alternating: 0 and 2, 1 and 3.
  __device__ __forceinline__ static uint2 in_order(uint32_t four) {
    if constexpr (kScaled) return from_int8(four);
    return from_e4m3<__half>(four);
  }
  __device__ __forceinline__ static uint2 alternating(uint32_t four) {
    if constexpr (kScaled) return from_int8_alternating(four);
    return from_e4m3<__half>(__byte_perm(four, 0, 0x3120));
  }

  __device__ __forceinline__ static __nv_bfloat16* scales(std::byte* head, int32_t dim,
                                                          int32_t block_tokens) {
    return reinterpret_cast<__nv_bfloat16*>(head + int64_t{block_tokens} * dim);
  }
  __device__ __forceinline__ static const __nv_bfloat16* scales(const std::byte* head, int32_t dim,
                                                                int32_t block_tokens) {
    return reinterpret_cast<const __nv_bfloat16*>(head + int64_t{block_tokens} * dim);
  }
};

// The scale of a head, from the bits of its numbers' magnitudes: those of NaN and of infinity are
// above all others. store_numbers() (kv_numbers.h) says what it does, and has the same bits.
struct Int8Scale {
  __nv_bfloat16 scale;
  float inverse;  // 0: all numbers are

  __device__ __forceinline__ static uint32_t magnitude(float number) {
    return __float_as_uint(number) & 0x7fffffffu;
  }
  __device__ __forceinline__ static Int8Scale of(uint32_t largest_magnitude) {
    const float largest = __uint_as_float(largest_magnitude);
    if (!(largest < INFINITY)) return {__ushort_as_bfloat16(0x7fc0), 0.0f};
    if (largest < 0x1p-100f) return {__ushort_as_bfloat16(0), 0.0f};
    const __nv_bfloat16 scale = __float2bfloat16_rn(__fdiv_rn(largest, 127.0f));
    return {scale, __frcp_rn(__bfloat162float(scale))};
  }
  __device__ __forceinline__ uint32_t integer(float number) const {  // its byte
    if (inverse == 0.0f) return 0;
    return static_cast<uint32_t>(__float2int_rn(__fmul_rn(number, inverse))) & 0xffu;
  }
};

}  // namespace headrace::gpu
