// What decode's pages are made of (decode.cuh): how one comes into shared memory, and how a warp
// takes operands of the tensor cores from it. For each step of 16 components
//   keys    A [16 tokens, 16 components]     queries  B [16 components, 8 rows]
//   values  A [16 components, 16 tokens]
// Which component is which row or column of an operand is the page's own business, as long as
// queries have the keys' order and results are stored in that of the values.
#pragma once

#include "gpu/bulk_copy.cuh"
#include "gpu/mma.cuh"
#include "gpu/tma.cuh"
#include "ops/attention/attention_tensor_map.cuh"
#include "ops/attention/page.cuh"
#include "ops/attention/page_numbers.cuh"

namespace headrace::gpu {

// Of 16-bit elements, by the boxes of a tensor map (page.cuh). Values may have fewer components
// than keys.
template <class T, int kDim, int kValueDim>
class WidePages {
  using P = Page<kDim>;
  using V = Page<kValueDim>;

 public:
  using Operand = T;
  static constexpr int kBytes = P::kBytes;
  static constexpr int kFetchedBytes = P::kBytes + V::kBytes;
  static constexpr int kSteps = kDim / 16, kValueSteps = kValueDim / 16;
  static constexpr bool kScaled = false;  // whether tokens have scales

  struct Source {
    CUtensorMap keys, values;
  };
  static Source source(const KvLayerView& kv) {
    return {page_map(kv, kv.base, kDim, P::kChunk),
            page_map(kv, kv.base + kv.v_offset, kValueDim, V::kChunk)};
  }
  // One thread.
  __device__ static void prefetch(const Source& from) {
    prefetch_tensor_map(from.keys);
    prefetch_tensor_map(from.values);
  }
  // One thread. `to`: the pages of keys and of values; kFetchedBytes count towards `arrived`.
  __device__ static void fetch(const Source& from, std::byte (&to)[2][kBytes], int32_t head,
                               int32_t block, Barrier& arrived) {
    copy_box(to[0], from.keys, arrived, 0, 0, 0, 2 * head, block);
    copy_box(to[1], from.values, arrived, 0, 0, 0, 2 * head, block);
  }

  __device__ explicit WidePages(int lane)
      : key_lane_(P::lane_part(lane % 8 + lane / 8 % 2 * 8, lane / 16 * 8)),
        value_lane_(V::lane_part(lane % 8 + lane / 16 * 8, lane / 8 % 2 * 8)) {}

  // body(step, operand) for each step of a page of keys, of values. `low`, `high`: what is kept of
  // the values of tokens t and t + 1, t + 8 and t + 9, t = lane % 4 * 2: a mask for 16 bits each.
  template <class Body>
  __device__ __forceinline__ void for_keys(uint32_t page, const Body& body) const {
#pragma unroll
    for (int s = 0; s < kSteps; ++s) {
      uint32_t a[4];
      load_matrices(a, page + P::at(key_lane_, s * 16));
      body(s, a);
    }
  }
  template <class Body>
  __device__ __forceinline__ void for_values(uint32_t page, uint32_t low, uint32_t high,
                                             const Body& body) const {
#pragma unroll
    for (int s = 0; s < kValueSteps; ++s) {
      uint32_t a[4];
      load_matrices_transposed(a, page + V::at(value_lane_, s * 16));
      a[0] &= low;
      a[1] &= low;
      a[2] &= high;
      a[3] &= high;
      body(s, a);
    }
  }
  // The operand of a row of queries, of which the lane has row lane / 4.
  __device__ __forceinline__ static void load_query(const T* row, int lane, int step,
                                                    uint32_t (&b)[2]) {
    const T* at = row + step * 16 + lane % 4 * 2;
    b[0] = *reinterpret_cast<const uint32_t*>(at);
    b[1] = *reinterpret_cast<const uint32_t*>(at + 8);
  }
  // The component of row lane / 4 (`half` 0) or lane / 4 + 8 of the values' operand.
  __device__ __forceinline__ static int component(int lane, int step, int half) {
    return step * 16 + lane / 4 + half * 8;
  }

 private:
  const typename P::LanePart key_lane_;
  const typename V::LanePart value_lane_;
};

// Of numbers in columns (page_numbers.cuh): 256 bytes a column, 16 for each token. Products are of
// F16, which holds them exactly, whatever the activations are: one instruction makes a pair of
// floats, two and a half one of integers. Queries become F16 too: components beyond
// 65504 are infinite. Integers are multiplied without their scales: a scale is a token's, a row of
// the keys' operand, so that scores are multiplied by it, and of values the weights before they are
// an operand (beyond 65504 infinite, too).
template <class T, int kDim, PageNumbers kNumbers>
class ColumnPages {
  using Numbers = ColumnNumbers<kNumbers>;
  static_assert(kDim % Numbers::kColumn == 0);
  static constexpr int kColumnBytes = kPageTokens * kKvColumn;

 public:
  using Operand = __half;
  static constexpr int kBytes = static_cast<int>(Numbers::head_bytes(kDim, kPageTokens));
  static constexpr int kFetchedBytes = 2 * kBytes;
  static constexpr int kSteps = kDim / 16;
  static constexpr bool kScaled = Numbers::kScaled;

  struct Source {
    const std::byte* keys;  // K part of block 0
    const std::byte* values;
    int64_t block_stride;
  };
  static Source source(const KvLayerView& kv) {
    return {kv.base, kv.base + kv.v_offset, kv.block_stride};
  }
  __device__ static void prefetch(const Source&) {}
  __device__ static void fetch(const Source& from, std::byte (&to)[2][kBytes], int32_t head,
                               int32_t block, Barrier& arrived) {
    const int64_t at = block * from.block_stride + int64_t{head} * kBytes;
    copy_bytes(to[0], from.keys + at, kBytes, arrived);
    copy_bytes(to[1], from.values + at, kBytes, arrived);
  }

  __device__ explicit ColumnPages(int lane) : lane_(lane) {}

  // The scales of tokens lane / 4 and lane / 4 + 8 of a page.
  __device__ __forceinline__ float2 scales(const std::byte* page) const {
    const __nv_bfloat16* of = Numbers::scales(page, kDim, kPageTokens) + lane_ / 4;
    return {to_float(of[0]), to_float(of[8])};
  }

  // A matrix of "16-bit elements" has two or four components in each: a lane gets a word of a
  // column, of tokens lane / 4 and lane / 4 + 8, whose components are the columns t, t + 1, t + 8
  // and t + 9 of the operands of its steps (mma.cuh).
  template <class Body>
  __device__ __forceinline__ void for_keys(uint32_t page, const Body& body) const {
    for_words<false>(page, [&](int column, uint32_t low, uint32_t high) {
      Numbers::keys(low, high, [&](int step, const uint32_t(&a)[4]) {
        body(column * Numbers::kColumnSteps + step, a);
      });
    });
  }
  // Transposed, a lane gets the components of one such element, of tokens t and t + 1, and of t + 8
  // and t + 9: they are rows g and g + 8 of the operands. An integer is never NaN: where there are
  // scales, those keep out what was not written.
  template <class Body>
  __device__ __forceinline__ void for_values(uint32_t page, uint32_t low, uint32_t high,
                                             const Body& body) const {
    for_words<true>(page, [&](int column, uint32_t first, uint32_t second) {
      Numbers::values(
          kScaled ? first : first & low, kScaled ? second : second & high,
          [&](int step, const uint32_t(&a)[4]) { body(column * Numbers::kColumnSteps + step, a); });
    });
  }
  __device__ __forceinline__ static void load_query(const T* row, int lane, int step,
                                                    uint32_t (&b)[2]) {
    const T* column = row + step / Numbers::kColumnSteps * Numbers::kColumn;
    const auto at = Numbers::query_place(lane, step % Numbers::kColumnSteps);
    b[0] = packed<__half>(to_float(column[at.first]), to_float(column[at.second]));
    b[1] = packed<__half>(to_float(column[at.third]), to_float(column[at.fourth]));
  }
  __device__ __forceinline__ static int component(int lane, int step, int half) {
    return step / Numbers::kColumnSteps * Numbers::kColumn +
           Numbers::component(lane, step % Numbers::kColumnSteps, half);
  }

 private:
  // body(column, of tokens 0 to 7, of tokens 8 to 15): two columns a load.
  template <bool kTransposed, class Body>
  __device__ __forceinline__ void for_words(uint32_t page, const Body& body) const {
    constexpr int kColumns = kDim / Numbers::kColumn;
    // The last column of an odd number is loaded twice.
    const uint32_t at = page + static_cast<uint32_t>(lane_ * 16);
    const uint32_t last = page + static_cast<uint32_t>(lane_ % 16 * 16);
#pragma unroll
    for (int c = 0; c < kColumns; c += 2) {
      uint32_t words[4];
      const uint32_t row = (c + 1 < kColumns ? at : last) + static_cast<uint32_t>(c * kColumnBytes);
      if constexpr (kTransposed) {
        load_matrices_transposed(words, row);
      } else {
        load_matrices(words, row);
      }
      body(c, words[0], words[1]);
      if (c + 1 < kColumns) body(c + 1, words[2], words[3]);
    }
  }

  const int lane_;
};

template <class T, int kDim, int kValueDim, PageNumbers kNumbers>
struct PagesOfNumbers {
  static_assert(kValueDim == kDim, "columns of keys and values are alike");
  using Type = ColumnPages<T, kDim, kNumbers>;
};
template <class T, int kDim, int kValueDim>
struct PagesOfNumbers<T, kDim, kValueDim, PageNumbers::kPlain> {
  using Type = WidePages<T, kDim, kValueDim>;
};
template <class T, int kDim, int kValueDim, PageNumbers kNumbers>
using PagesOf = typename PagesOfNumbers<T, kDim, kValueDim, kNumbers>::Type;

// The place of one head's keys, and that of its values, of 16-bit activations.
template <int kDim, PageNumbers kNumbers>
constexpr int decode_page_bytes() {
  return PagesOf<__half, kDim, kDim, kNumbers>::kBytes;
}

}  // namespace headrace::gpu
