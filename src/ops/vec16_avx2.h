// Sixteen floats in two 256-bit registers (AVX2, FMA, F16C): see vec16_avx512.h, whose twin this
// is.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace headrace {
namespace {

struct Vec16 {
  __m256 a, b;  // lanes 0-7, 8-15
};

// Attention's passes: rows that share what is loaded, and vectors of it. 12 sums of 8 floats, a
// vector and a factor fit 16 registers.
constexpr int kPassRows = 6;
constexpr int pass_vecs(int rows) { return rows <= 3 ? 2 : 1; }

inline Vec16 broadcast(float value) {
  const __m256 v = _mm256_set1_ps(value);
  return {v, v};
}
inline Vec16 zero() { return broadcast(0.0f); }
inline Vec16 load(const float* from) { return {_mm256_loadu_ps(from), _mm256_loadu_ps(from + 8)}; }
inline void store(float* to, Vec16 x) {
  _mm256_storeu_ps(to, x.a);
  _mm256_storeu_ps(to + 8, x.b);
}

// Rows and columns of eight vectors of eight.
inline void transpose8(__m256 (&x)[8]) {
  __m256 pairs[8], fours[8];
  for (int i = 0; i < 8; i += 2) {
    pairs[i] = _mm256_unpacklo_ps(x[i], x[i + 1]);
    pairs[i + 1] = _mm256_unpackhi_ps(x[i], x[i + 1]);
  }
  for (int i = 0; i < 8; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m256d low = _mm256_castps_pd(pairs[i + j]), high = _mm256_castps_pd(pairs[i + j + 2]);
      fours[i + 2 * j] = _mm256_castpd_ps(_mm256_unpacklo_pd(low, high));
      fours[i + 2 * j + 1] = _mm256_castpd_ps(_mm256_unpackhi_pd(low, high));
    }
  }
  for (int i = 0; i < 4; ++i) {
    x[i] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x20);
    x[i + 4] = _mm256_permute2f128_ps(fours[i], fours[i + 4], 0x31);
  }
}
// Lane j of x[i] and lane i of x[j] change places.
inline void transpose(Vec16 (&x)[16]) {
  __m256 parts[2][2][8];  // [half of the rows][half of the lanes]
  for (int i = 0; i < 16; ++i) {
    parts[i / 8][0][i % 8] = x[i].a;
    parts[i / 8][1][i % 8] = x[i].b;
  }
  for (auto& halves : parts) {
    for (auto& part : halves) transpose8(part);
  }
  for (int i = 0; i < 16; ++i) x[i] = {parts[0][i / 8][i % 8], parts[1][i / 8][i % 8]};
}

inline Vec16 add(Vec16 x, Vec16 y) { return {_mm256_add_ps(x.a, y.a), _mm256_add_ps(x.b, y.b)}; }
inline Vec16 sub(Vec16 x, Vec16 y) { return {_mm256_sub_ps(x.a, y.a), _mm256_sub_ps(x.b, y.b)}; }
inline Vec16 mul(Vec16 x, Vec16 y) { return {_mm256_mul_ps(x.a, y.a), _mm256_mul_ps(x.b, y.b)}; }
inline Vec16 div(Vec16 x, Vec16 y) { return {_mm256_div_ps(x.a, y.a), _mm256_div_ps(x.b, y.b)}; }
inline Vec16 square_root(Vec16 x) { return {_mm256_sqrt_ps(x.a), _mm256_sqrt_ps(x.b)}; }
inline Vec16 fma(Vec16 x, Vec16 y, Vec16 z) {
  return {_mm256_fmadd_ps(x.a, y.a, z.a), _mm256_fmadd_ps(x.b, y.b, z.b)};
}
inline Vec16 fnma(Vec16 x, Vec16 y, Vec16 z) {
  return {_mm256_fnmadd_ps(x.a, y.a, z.a), _mm256_fnmadd_ps(x.b, y.b, z.b)};
}
inline Vec16 max(Vec16 x, Vec16 y) { return {_mm256_max_ps(x.a, y.a), _mm256_max_ps(x.b, y.b)}; }
inline Vec16 absolute(Vec16 x) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_andnot_ps(bit, x.a), _mm256_andnot_ps(bit, x.b)};
}
inline Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  const __m256 bit = _mm256_set1_ps(-0.0f);
  return {_mm256_or_ps(_mm256_andnot_ps(bit, magnitude.a), _mm256_and_ps(bit, sign.a)),
          _mm256_or_ps(_mm256_andnot_ps(bit, magnitude.b), _mm256_and_ps(bit, sign.b))};
}
inline Vec16 round_to_integer(Vec16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  return {_mm256_round_ps(x.a, kNearest), _mm256_round_ps(x.b, kNearest)};
}
inline Vec16 where_less(Vec16 x, float bound, Vec16 y, Vec16 z) {
  const __m256 limit = _mm256_set1_ps(bound);
  return {_mm256_blendv_ps(z.a, y.a, _mm256_cmp_ps(x.a, limit, _CMP_LT_OQ)),
          _mm256_blendv_ps(z.b, y.b, _mm256_cmp_ps(x.b, limit, _CMP_LT_OQ))};
}
inline Vec16 where_greater(Vec16 x, float bound, Vec16 y, Vec16 z) {
  const __m256 limit = _mm256_set1_ps(bound);
  return {_mm256_blendv_ps(z.a, y.a, _mm256_cmp_ps(x.a, limit, _CMP_GT_OQ)),
          _mm256_blendv_ps(z.b, y.b, _mm256_cmp_ps(x.b, limit, _CMP_GT_OQ))};
}
inline bool any_nan(Vec16 x) {
  return _mm256_movemask_ps(_mm256_or_ps(_mm256_cmp_ps(x.a, x.a, _CMP_UNORD_Q),
                                         _mm256_cmp_ps(x.b, x.b, _CMP_UNORD_Q))) != 0;
}

// In two steps: 2^128 and 2^-127 are no normal floats.
inline __m256 scale_by_power(__m256 x, __m256 n) {
  const __m256i power = _mm256_cvtps_epi32(n);
  const __m256i half = _mm256_srai_epi32(power, 1);
  const __m256i bias = _mm256_set1_epi32(127);
  const __m256i first = _mm256_slli_epi32(_mm256_add_epi32(half, bias), 23);
  const __m256i second =
      _mm256_slli_epi32(_mm256_add_epi32(_mm256_sub_epi32(power, half), bias), 23);
  return _mm256_mul_ps(_mm256_mul_ps(x, _mm256_castsi256_ps(first)), _mm256_castsi256_ps(second));
}
inline Vec16 scale_by_power(Vec16 x, Vec16 n) {
  return {scale_by_power(x.a, n.a), scale_by_power(x.b, n.b)};
}

// All bits set in lanes [first, last) of lanes `offset`, `offset` + 1, ...
inline __m256i lane_mask(int offset, int64_t first, int64_t last) {
  const __m256i lane =
      _mm256_add_epi32(_mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7), _mm256_set1_epi32(offset));
  const __m256i from = _mm256_cmpgt_epi32(lane, _mm256_set1_epi32(static_cast<int>(first) - 1));
  const __m256i to = _mm256_cmpgt_epi32(_mm256_set1_epi32(static_cast<int>(last)), lane);
  return _mm256_and_si256(from, to);
}
inline Vec16 keep_lanes(Vec16 x, int first, int last, float fill) {
  const __m256 other = _mm256_set1_ps(fill);
  return {_mm256_blendv_ps(other, x.a, _mm256_castsi256_ps(lane_mask(0, first, last))),
          _mm256_blendv_ps(other, x.b, _mm256_castsi256_ps(lane_mask(8, first, last)))};
}
inline Vec16 load_first(const float* from, int64_t count, float fill) {
  const __m256 other = _mm256_set1_ps(fill);
  const __m256i low = lane_mask(0, 0, count);
  const __m256i high = lane_mask(8, 0, count);
  return {_mm256_blendv_ps(other, _mm256_maskload_ps(from, low), _mm256_castsi256_ps(low)),
          _mm256_blendv_ps(other, _mm256_maskload_ps(from + 8, high), _mm256_castsi256_ps(high))};
}
inline void store_first(float* to, Vec16 x, int64_t count) {
  _mm256_maskstore_ps(to, lane_mask(0, 0, count), x.a);
  _mm256_maskstore_ps(to + 8, lane_mask(8, 0, count), x.b);
}

inline __m128i load_eight_halves(const std::byte* from) {
  return _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
}
inline Vec16 load_f16(const std::byte* from) {
  return {_mm256_cvtph_ps(load_eight_halves(from)), _mm256_cvtph_ps(load_eight_halves(from + 16))};
}
inline __m256 widen_bf16(__m128i bits) {
  return _mm256_castsi256_ps(_mm256_slli_epi32(_mm256_cvtepu16_epi32(bits), 16));
}
inline Vec16 load_bf16(const std::byte* from) {
  return {widen_bf16(load_eight_halves(from)), widen_bf16(load_eight_halves(from + 16))};
}
inline void store_f16(std::byte* to, Vec16 x) {
  constexpr int kNearest = _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC;
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm256_cvtps_ph(x.a, kNearest));
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to + 16), _mm256_cvtps_ph(x.b, kNearest));
}

inline __m256 widen_i8(const std::byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(bytes));
}
inline Vec16 load_i8(const std::byte* from) { return {widen_i8(from), widen_i8(from + 8)}; }
// 4-bit integers, of which 8 was added. 16 of 8 bytes: the lower halves, then the upper ones.
inline __m256 lower_i4(__m128i bytes) {
  const __m128i halves = _mm_and_si128(bytes, _mm_set1_epi8(15));
  return _mm256_cvtepi32_ps(_mm256_cvtepi8_epi32(_mm_sub_epi8(halves, _mm_set1_epi8(8))));
}
inline Vec16 load_i4(const std::byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return {lower_i4(bytes), lower_i4(_mm_srli_epi16(bytes, 4))};
}
// Of 16 bytes the lower halves (`half` 0) or the upper ones (1).
inline Vec16 load_i4_half(const std::byte* from, int half) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  const __m128i moved = _mm_srl_epi16(bytes, _mm_cvtsi32_si128(4 * half));
  return {lower_i4(moved), lower_i4(_mm_unpackhi_epi64(moved, moved))};
}
inline __m128i narrow_to_16(__m256 x) {
  const __m256i wide = _mm256_cvtps_epi32(x);
  return _mm_packs_epi32(_mm256_castsi256_si128(wide), _mm256_extracti128_si256(wide, 1));
}
inline void store_i8(std::byte* to, Vec16 x) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to),
                   _mm_packs_epi16(narrow_to_16(x.a), narrow_to_16(x.b)));
}

inline float sum_of(Vec16 x) {
  const __m256 eight = _mm256_add_ps(x.a, x.b);
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest_of(Vec16 x) {
  const __m256 eight = _mm256_max_ps(x.a, x.b);
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace headrace
