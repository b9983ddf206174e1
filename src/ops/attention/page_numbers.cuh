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
  kInt4,   // KvFormat::kInt4Head
};

template <PageNumbers kNumbers>
using PageNumbersOf = std::integral_constant<PageNumbers, kNumbers>;

// body(PageNumbersOf<...>{}) for the format of a layer's keys and values, which are alike.
template <class Body>
void with_page_numbers(const KvLayerView& kv, const Body& body) {
  if (kv.k_format == KvFormat::kFp8) return body(PageNumbersOf<PageNumbers::kFp8>{});
  if (kv.k_format == KvFormat::kInt8Head) return body(PageNumbersOf<PageNumbers::kInt8>{});
  if (kv.k_format == KvFormat::kInt4Head) return body(PageNumbersOf<PageNumbers::kInt4>{});
  body(PageNumbersOf<PageNumbers::kPlain>{});
}

// Numbers in columns (column_place(), KvHeadView::half_byte()); behind those of a head, where they
// are `kScaled`, a scale in BF16 for each of its tokens. A column has 16 bytes a token, which are
// one or two steps of 16 components.
template <PageNumbers kNumbers>
struct ColumnNumbers {
  static_assert(kNumbers != PageNumbers::kPlain);
  static constexpr bool kScaled = kNumbers != PageNumbers::kFp8;
  static constexpr int kColumnSteps = kNumbers == PageNumbers::kInt4 ? 2 : 1;
  static constexpr int kColumn = kColumnSteps * 16;      // components
  static constexpr int kWordNumbers = 4 * kColumnSteps;  // of 32 bits

  // Of one head of a block: its numbers, and all.
  __host__ __device__ static constexpr int64_t number_bytes(int32_t dim, int32_t block_tokens) {
    if (kColumnSteps == 1) return int64_t{block_tokens} * dim;
    return int64_t{block_tokens} * ((dim + kColumn - 1) / kColumn) * kKvColumn;
  }
  __host__ __device__ static constexpr int64_t head_bytes(int32_t dim, int32_t block_tokens) {
    return number_bytes(dim, block_tokens) + (kScaled ? 2 * block_tokens : 0);
  }

  // Operands of keys of a column's steps, of the words of tokens 0 to 7 and 8 to 15: body(step of
  // the column, operand).
  template <class Body>
  __device__ __forceinline__ static void keys(uint32_t low, uint32_t high, const Body& body) {
    if constexpr (kColumnSteps == 1) {
      const uint2 first = in_order(low), second = in_order(high);
      const uint32_t a[4] = {first.x, second.x, first.y, second.y};
      body(0, a);
    } else {
      const uint4 first = from_int4(low), second = from_int4(high);
      const uint32_t a[4] = {first.x, second.x, first.y, second.y};
      body(0, a);
      const uint32_t b[4] = {first.z, second.z, first.w, second.w};
      body(1, b);
    }
  }
  // The same of values, of words of transposed matrices.
  template <class Body>
  __device__ __forceinline__ static void values(uint32_t low, uint32_t high, const Body& body) {
    if constexpr (kColumnSteps == 1) {
      const uint2 ab = alternating(low), cd = alternating(high);
      const uint32_t a[4] = {ab.x, ab.y, cd.x, cd.y};
      body(0, a);
    } else {
      const uint4 ab = from_int4(low), cd = from_int4(high);
      const uint32_t a[4] = {ab.x, ab.y, cd.x, cd.y};
      body(0, a);
      const uint32_t b[4] = {ab.z, ab.w, cd.z, cd.w};
      body(1, b);
    }
  }
  // What queries that meet keys' operands have in a lane's places of a step of a column: from
  // component `first` of the column, and the three behind it.
  struct QueryPlace {
    int first, second, third, fourth;
  };
  __device__ __forceinline__ static QueryPlace query_place(int lane, int step) {
    if constexpr (kColumnSteps == 1) {
      const int at = lane % 4 * 4;
      return {at, at + 1, at + 2, at + 3};
    }
    const int at = lane % 4 * 8 + step * 2;
    return {at, at + 4, at + 1, at + 5};
  }
  // The component of a column that row lane / 4 (`half` 0) or lane / 4 + 8 of values' operand is.
  __device__ __forceinline__ static int component(int lane, int step, int half) {
    if constexpr (kColumnSteps == 1) return lane / 4 * 2 + half;
    return lane / 4 * 4 + step * 2 + half;
  }

  // The numbers of a word, in order, without their scale.
  __device__ __forceinline__ static void load_word(uint32_t word, float (&numbers)[kWordNumbers]) {
    const auto put = [&](uint32_t pair, int first, int second) {
      const float2 two = __half22float2(reinterpret_cast<const __half2&>(pair));
      numbers[first] = two.x;
      numbers[second] = two.y;
    };
    if constexpr (kColumnSteps == 1) {
      const uint2 pairs = in_order(word);
      put(pairs.x, 0, 1);
      put(pairs.y, 2, 3);
    } else {
      const uint4 pairs = from_int4(word);
      put(pairs.x, 0, 4);
      put(pairs.y, 1, 5);
      put(pairs.z, 2, 6);
      put(pairs.w, 3, 7);
    }
  }
  // Where the word of component d, a multiple of kWordNumbers, is in a head of a block.
  __device__ __forceinline__ static int64_t word_place(int32_t dim, int32_t block_tokens,
                                                       int32_t token, int32_t d) {
    if constexpr (kColumnSteps == 1) return column_place(dim, block_tokens, token, d);
    return (int64_t{d / kColumn} * block_tokens + token) * kKvColumn + d % kColumn / 2;
  }

  __device__ __forceinline__ static __nv_bfloat16* scales(std::byte* head, int32_t dim,
                                                          int32_t block_tokens) {
    return reinterpret_cast<__nv_bfloat16*>(head + number_bytes(dim, block_tokens));
  }
  __device__ __forceinline__ static const __nv_bfloat16* scales(const std::byte* head, int32_t dim,
                                                                int32_t block_tokens) {
    return reinterpret_cast<const __nv_bfloat16*>(head + number_bytes(dim, block_tokens));
  }

 private:
  // Four numbers of a byte: 0 and 1, 2 and 3; alternating: 0 and 2, 1 and 3.
  __device__ __forceinline__ static uint2 in_order(uint32_t four) {
    if constexpr (kScaled) return from_int8(four);
    return from_e4m3<__half>(four);
  }
  __device__ __forceinline__ static uint2 alternating(uint32_t four) {
    if constexpr (kScaled) return from_int8_alternating(four);
    return from_e4m3<__half>(__byte_perm(four, 0, 0x3120));
  }
};

// The scale of a head, from the bits of its numbers' magnitudes, in order: those of NaN and of
// infinity are above all others, of two alike the negative one. store_numbers() (kv_numbers.h) says
// what it does, and has the same bits.
struct HeadScale {
  __nv_bfloat16 scale;
  float inverse;  // 0: all numbers are

  __device__ __forceinline__ static uint32_t magnitude(float number) {
    const uint32_t bits = __float_as_uint(number);
    return bits << 1 | bits >> 31;
  }
  template <PageNumbers kNumbers>
  __device__ __forceinline__ static HeadScale of(uint32_t largest_magnitude) {
    const float largest = __uint_as_float(largest_magnitude >> 1);
    if (!(largest < INFINITY)) return {__ushort_as_bfloat16(0x7fc0), 0.0f};
    if (largest < 0x1p-100f) return {__ushort_as_bfloat16(0), 0.0f};
    const float exact = kNumbers == PageNumbers::kInt8 ? __fdiv_rn(largest, 127.0f)
                        : (largest_magnitude & 1) != 0 ? largest * 0.125f
                                                       : largest * -0.125f;
    const __nv_bfloat16 scale = __float2bfloat16_rn(exact);
    return {scale, __frcp_rn(__bfloat162float(scale))};
  }
  __device__ __forceinline__ uint32_t byte_of(float number) const {
    if (inverse == 0.0f) return 0;
    return static_cast<uint32_t>(__float2int_rn(__fmul_rn(number, inverse))) & 0xffu;
  }
  __device__ __forceinline__ uint32_t half_byte_of(float number) const {
    if (inverse == 0.0f) return 8;
    return static_cast<uint32_t>(min(max(__float2int_rn(__fmul_rn(number, inverse)), -8), 7) + 8);
  }
};

}  // namespace headrace::gpu
