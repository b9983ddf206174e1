// Sixteen floats in one 512-bit register: the vocabulary that CPU kernels are written in.
//
// A kernel body (<op>_vec16.h) is compiled twice, after this header in <op>_cpu_avx512.cc and after
// vec16_avx2.h in <op>_cpu_avx2.cc. Both do the same operations in the same order, fused where
// fma() stands, so that a kernel gives the same bits on both. Everything is in an unnamed
// namespace: a shared inline function could be picked by the linker for a machine without the
// instructions.
#pragma once

#include <immintrin.h>

#include <cstddef>
#include <cstdint>

namespace headrace {
namespace {

struct Vec16 {
  __m512 v;
};

// Attention's passes: rows that share what is loaded, and vectors of it. 28 sums, two vectors and a
// factor fit 32 registers; each vector is converted from 16 bits, which costs half as much as the
// multiply-adds of 6 rows.
constexpr int kPassRows = 14;
constexpr int pass_vecs(int rows) { return rows <= 6 ? 4 : 2; }

inline Vec16 broadcast(float value) { return {_mm512_set1_ps(value)}; }
inline Vec16 zero() { return {_mm512_setzero_ps()}; }
inline Vec16 load(const float* from) { return {_mm512_loadu_ps(from)}; }
inline void store(float* to, Vec16 a) { _mm512_storeu_ps(to, a.v); }

// Lane j of x[i] and lane i of x[j] change places.
inline void transpose(Vec16 (&x)[16]) {
  __m512 pairs[16], fours[16];
  for (int i = 0; i < 16; i += 2) {
    pairs[i] = _mm512_unpacklo_ps(x[i].v, x[i + 1].v);
    pairs[i + 1] = _mm512_unpackhi_ps(x[i].v, x[i + 1].v);
  }
  for (int i = 0; i < 16; i += 4) {
    for (int j = 0; j < 2; ++j) {
      const __m512d low = _mm512_castps_pd(pairs[i + j]), high = _mm512_castps_pd(pairs[i + j + 2]);
      fours[i + 2 * j] = _mm512_castpd_ps(_mm512_unpacklo_pd(low, high));
      fours[i + 2 * j + 1] = _mm512_castpd_ps(_mm512_unpackhi_pd(low, high));
    }
  }
  // Part g of fours[4 i + j] has column 4 g + j of rows 4 i to 4 i + 3.
  for (int j = 0; j < 4; ++j) {
    const __m512 even_01 = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0x88);
    const __m512 even_23 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0x88);
    const __m512 odd_01 = _mm512_shuffle_f32x4(fours[j], fours[4 + j], 0xdd);
    const __m512 odd_23 = _mm512_shuffle_f32x4(fours[8 + j], fours[12 + j], 0xdd);
    x[j].v = _mm512_shuffle_f32x4(even_01, even_23, 0x88);
    x[8 + j].v = _mm512_shuffle_f32x4(even_01, even_23, 0xdd);
    x[4 + j].v = _mm512_shuffle_f32x4(odd_01, odd_23, 0x88);
    x[12 + j].v = _mm512_shuffle_f32x4(odd_01, odd_23, 0xdd);
  }
}

inline Vec16 add(Vec16 a, Vec16 b) { return {_mm512_add_ps(a.v, b.v)}; }
inline Vec16 sub(Vec16 a, Vec16 b) { return {_mm512_sub_ps(a.v, b.v)}; }
inline Vec16 mul(Vec16 a, Vec16 b) { return {_mm512_mul_ps(a.v, b.v)}; }
inline Vec16 div(Vec16 a, Vec16 b) { return {_mm512_div_ps(a.v, b.v)}; }
inline Vec16 square_root(Vec16 a) { return {_mm512_sqrt_ps(a.v)}; }
// a * b + c, rounded once.
inline Vec16 fma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fmadd_ps(a.v, b.v, c.v)}; }
// c - a * b, rounded once.
inline Vec16 fnma(Vec16 a, Vec16 b, Vec16 c) { return {_mm512_fnmadd_ps(a.v, b.v, c.v)}; }
// b where either is NaN.
inline Vec16 max(Vec16 a, Vec16 b) { return {_mm512_max_ps(a.v, b.v)}; }
inline Vec16 absolute(Vec16 a) { return {_mm512_abs_ps(a.v)}; }
inline Vec16 copy_sign(Vec16 magnitude, Vec16 sign) {
  const __m512 bit = _mm512_set1_ps(-0.0f);
  return {_mm512_or_ps(_mm512_andnot_ps(bit, magnitude.v), _mm512_and_ps(bit, sign.v))};
}
inline Vec16 round_to_integer(Vec16 a) {
  return {_mm512_roundscale_ps(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC)};
}
// b where a < bound, else c; c where a is NaN.
inline Vec16 where_less(Vec16 a, float bound, Vec16 b, Vec16 c) {
  return {
      _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, _mm512_set1_ps(bound), _CMP_LT_OQ), c.v, b.v)};
}
inline Vec16 where_greater(Vec16 a, float bound, Vec16 b, Vec16 c) {
  return {
      _mm512_mask_blend_ps(_mm512_cmp_ps_mask(a.v, _mm512_set1_ps(bound), _CMP_GT_OQ), c.v, b.v)};
}
inline bool any_nan(Vec16 a) { return _mm512_cmp_ps_mask(a.v, a.v, _CMP_UNORD_Q) != 0; }

// a * 2^n for whole n in [-252, 254]; the result must be a normal number or 0.
inline Vec16 scale_by_power(Vec16 a, Vec16 n) { return {_mm512_scalef_ps(a.v, n.v)}; }

// Lanes [first, last) of `a`, `fill` in the others. 0 <= first, last <= 16
inline Vec16 keep_lanes(Vec16 a, int first, int last, float fill) {
  const auto mask = static_cast<__mmask16>(((1u << last) - 1) & ~((1u << first) - 1));
  return {_mm512_mask_blend_ps(mask, _mm512_set1_ps(fill), a.v)};
}
// The first `count` floats at `from`, `fill` in the other lanes; touches no others.
inline Vec16 load_first(const float* from, int64_t count, float fill) {
  const auto mask = static_cast<__mmask16>((1u << count) - 1);
  return {_mm512_mask_loadu_ps(_mm512_set1_ps(fill), mask, from)};
}
inline void store_first(float* to, Vec16 a, int64_t count) {
  _mm512_mask_storeu_ps(to, static_cast<__mmask16>((1u << count) - 1), a.v);
}

inline Vec16 load_f16(const std::byte* from) {
  return {_mm512_cvtph_ps(_mm256_loadu_si256(reinterpret_cast<const __m256i*>(from)))};
}
inline Vec16 load_bf16(const std::byte* from) {
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(from));
  return {_mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16))};
}
inline void store_f16(std::byte* to, Vec16 a) {
  _mm256_storeu_si256(reinterpret_cast<__m256i*>(to),
                      _mm512_cvtps_ph(a.v, _MM_FROUND_TO_NEAREST_INT | _MM_FROUND_NO_EXC));
}

// Whole numbers in [-128, 127] as bytes.
inline Vec16 load_i8(const std::byte* from) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return {_mm512_cvtepi32_ps(_mm512_cvtepi8_epi32(bytes))};
}
// 4-bit integers, of which 8 was added. 16 of 8 bytes: the lower halves, then the upper ones.
inline Vec16 lower_i4(__m128i bytes) {
  const __m128i halves = _mm_and_si128(bytes, _mm_set1_epi8(15));
  const __m512i wide = _mm512_cvtepi8_epi32(_mm_sub_epi8(halves, _mm_set1_epi8(8)));
  return {_mm512_cvtepi32_ps(wide)};
}
inline Vec16 load_i4(const std::byte* from) {
  const __m128i bytes = _mm_loadl_epi64(reinterpret_cast<const __m128i*>(from));
  return lower_i4(_mm_unpacklo_epi64(bytes, _mm_srli_epi16(bytes, 4)));
}
// Of 16 bytes the lower halves (`half` 0) or the upper ones (1).
inline Vec16 load_i4_half(const std::byte* from, int half) {
  const __m128i bytes = _mm_loadu_si128(reinterpret_cast<const __m128i*>(from));
  return lower_i4(_mm_srl_epi16(bytes, _mm_cvtsi32_si128(4 * half)));
}
inline void store_i8(std::byte* to, Vec16 a) {
  _mm_storeu_si128(reinterpret_cast<__m128i*>(to), _mm512_cvtsepi32_epi8(_mm512_cvtps_epi32(a.v)));
}

// Lane pairs from far to near: 8, 4, 2, 1 apart.
inline float sum_of(Vec16 a) {
  const __m256 eight = _mm256_add_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_add_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_add_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_add_ss(two, _mm_shuffle_ps(two, two, 1)));
}
inline float largest_of(Vec16 a) {
  const __m256 eight = _mm256_max_ps(_mm512_castps512_ps256(a.v), _mm512_extractf32x8_ps(a.v, 1));
  const __m128 four = _mm_max_ps(_mm256_castps256_ps128(eight), _mm256_extractf128_ps(eight, 1));
  const __m128 two = _mm_max_ps(four, _mm_movehl_ps(four, four));
  return _mm_cvtss_f32(_mm_max_ss(two, _mm_shuffle_ps(two, two, 1)));
}

}  // namespace
}  // namespace headrace
