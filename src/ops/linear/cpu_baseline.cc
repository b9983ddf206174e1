// linear on any x86-64 (SSE2): the tiles of the other instruction sets on 4 lanes. FMA and the half
// conversion are emulated exactly, so the bits are those of AVX2 and AVX-512.
#include <emmintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

struct F32Weight {
  float value;
};
struct F16Weight {
  uint16_t bits;
};

// p + c rounded to odd at double's last bit, so that rounding again to float rounds only once
// (Boldo and Melquiond, "Emulation of FMA and correctly rounded sums", 2008).
double add_to_odd(double p, double c) {
  const double s = p + c;
  const double t = s - p;
  const double error = (p - (s - t)) + (c - t);
  if (!(error < 0.0) && !(error > 0.0)) return s;  // exact, or infinite: the error is NaN
  const int64_t bits = __builtin_bit_cast(int64_t, s);
  return __builtin_bit_cast(double, bits + ((error > 0.0) == (s > 0.0) ? 1 : -1));
}

// Two lanes of a * b + c. The product of two floats is exact in double, and the double sum rounds
// like the exact one except from the middle between two floats: 29 dropped bits that read 100...0.
__m128 fma_pair(__m128 a, __m128 b, __m128 c) {
  const __m128d p = _mm_mul_pd(_mm_cvtps_pd(a), _mm_cvtps_pd(b));
  const __m128d wide = _mm_cvtps_pd(c);
  __m128d s = _mm_add_pd(p, wide);
  const __m128i dropped = _mm_and_si128(_mm_castpd_si128(s), _mm_set1_epi64x(0x1fffffff));
  const __m128i middle = _mm_cmpeq_epi32(dropped, _mm_set1_epi64x(0x10000000));
  if (__builtin_expect((_mm_movemask_epi8(middle) & 0x0f0f) != 0, 0)) {
    double ps[2], cs[2];
    _mm_storeu_pd(ps, p);
    _mm_storeu_pd(cs, wide);
    const double s0 = add_to_odd(ps[0], cs[0]);
    const double s1 = add_to_odd(ps[1], cs[1]);
    // A lane that was not in the middle rounds the same either way.
    s = _mm_set_pd(s1, s0);
  }
  return _mm_cvtpd_ps(s);
}

struct Sse2 {
  using F32 = __m128;
  using I32 = __m128i;
  using F32Element = F32Weight;
  using F16Element = F16Weight;
  static constexpr int kLanes = 4;
  static constexpr int kTileRows = 2;
  static constexpr int kFloatTileRows = 2;
  static constexpr int float_groups(int) { return 1; }
  static constexpr BlockLayout kLayout = BlockLayout::kPairedWords;
  struct Quad {
    I32 even;  // columns 0 and 2 of each quad as words
    I32 odd;   // columns 1 and 3
  };

  static F32 zero() { return _mm_setzero_ps(); }
  static I32 splat_int(int32_t value) { return _mm_set1_epi32(value); }
  static F32 splat(const float* at) { return _mm_set1_ps(*at); }
  static F32 add(F32 a, F32 b) { return _mm_add_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm_mul_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) {
    const F32 low = fma_pair(a, b, c);
    const F32 high = fma_pair(_mm_movehl_ps(a, a), _mm_movehl_ps(b, b), _mm_movehl_ps(c, c));
    return _mm_movelh_ps(low, high);
  }
  static F32 fnma(F32 a, F32 b, F32 c) { return fma(_mm_xor_ps(a, _mm_set1_ps(-0.0f)), b, c); }
  static F32 to_float(I32 v) { return _mm_cvtepi32_ps(v); }

  static F32 load_some(const float* at, int count) {
    if (count == kLanes) return _mm_loadu_ps(at);
    float lanes[kLanes] = {};
    for (int i = 0; i < count; ++i) lanes[i] = at[i];
    return _mm_loadu_ps(lanes);
  }
  static void store_some(float* at, F32 v, int count) {
    if (count == kLanes) return _mm_storeu_ps(at, v);
    float lanes[kLanes];
    _mm_storeu_ps(lanes, v);
    for (int i = 0; i < count; ++i) at[i] = lanes[i];
  }

  static I32 load_words(const void* at) {  // 4 uint16 as int32
    const I32 words = _mm_loadl_epi64(static_cast<const I32*>(at));
    return _mm_unpacklo_epi16(words, _mm_setzero_si128());
  }
  static F32 load_half(const void* at) {
    const I32 bits = load_words(at);
    const I32 sign = _mm_slli_epi32(_mm_and_si128(bits, _mm_set1_epi32(0x8000)), 16);
    const I32 exponent = _mm_and_si128(bits, _mm_set1_epi32(0x7c00));
    const I32 rest = _mm_and_si128(bits, _mm_set1_epi32(0x7fff));
    // 112 more in the exponent's bias; infinities and NaNs get it twice.
    const I32 bias = _mm_set1_epi32(112 << 23);
    const I32 special = _mm_cmpeq_epi32(exponent, _mm_set1_epi32(0x7c00));
    const I32 normal =
        _mm_add_epi32(_mm_add_epi32(_mm_slli_epi32(rest, 13), bias), _mm_and_si128(special, bias));
    const I32 tiny = _mm_castps_si128(_mm_mul_ps(_mm_cvtepi32_ps(rest), _mm_set1_ps(0x1p-24f)));
    const I32 is_tiny = _mm_cmpeq_epi32(exponent, _mm_setzero_si128());
    const I32 magnitude =
        _mm_or_si128(_mm_and_si128(is_tiny, tiny), _mm_andnot_si128(is_tiny, normal));
    return _mm_castsi128_ps(_mm_or_si128(sign, magnitude));
  }
  static F32 load_element(const F32Weight* at) { return _mm_loadu_ps(&at->value); }
  static F32 load_element(const F16Weight* at) { return load_half(at); }
  // The low and the high 16 bits of each lane as BF16.
  static F32 low_half(I32 pairs) { return _mm_castsi128_ps(_mm_slli_epi32(pairs, 16)); }
  static F32 high_half(I32 pairs) {
    return _mm_castsi128_ps(_mm_and_si128(pairs, _mm_set1_epi32(-65536)));
  }
  static I32 load_bytes(const unsigned char* at) {
    return _mm_loadu_si128(reinterpret_cast<const I32*>(at));
  }
  // 4 integers of 8 bits.
  static I32 load_unsigned(const unsigned char* at) {
    int32_t bytes;
    __builtin_memcpy(&bytes, at, sizeof bytes);
    const I32 words = _mm_unpacklo_epi8(_mm_cvtsi32_si128(bytes), _mm_setzero_si128());
    return _mm_unpacklo_epi16(words, _mm_setzero_si128());
  }
  static I32 load_signed(const unsigned char* at) {
    const I32 integers = load_unsigned(at);
    return _mm_srai_epi32(_mm_slli_epi32(integers, 24), 24);
  }
  // Each byte shifted down by kShift, and `mask`.
  template <int kShift>
  static I32 field(I32 raw, int mask) {
    return _mm_and_si128(_mm_srli_epi16(raw, kShift), _mm_set1_epi8(static_cast<char>(mask)));
  }
  // Each byte of `low` or that of `raw` shifted down by kShift (up if negative) and `mask`.
  template <int kShift>
  static I32 with_field(I32 low, I32 raw, int mask) {
    if constexpr (kShift >= 0) {
      raw = _mm_srli_epi16(raw, kShift);
    } else {
      raw = _mm_slli_epi16(raw, -kShift);
    }
    return _mm_or_si128(low, _mm_and_si128(raw, _mm_set1_epi8(static_cast<char>(mask))));
  }
  template <StoredQuants kQuants>
  static I32 quants_of_indices(I32 index) {  // no byte shuffle in SSE2: sums of the steps passed
    constexpr StoredValues kValues = kStoredValues[static_cast<int>(kQuants)];
    I32 value = _mm_set1_epi8(static_cast<char>(kValues.of[0]));
    for (int i = 0; i < 15; ++i) {
      const I32 passed = _mm_cmpgt_epi8(index, _mm_set1_epi8(static_cast<char>(i)));
      const auto step = static_cast<char>(kValues.of[i + 1] - kValues.of[i]);
      value = _mm_add_epi8(value, _mm_and_si128(passed, _mm_set1_epi8(step)));
    }
    return value;
  }
  static I32 splat_bytes(const signed char* at) {
    int32_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return _mm_set1_epi32(word);
  }

  static Quad quad(I32 bytes) {
    return {_mm_and_si128(bytes, _mm_set1_epi16(255)), _mm_srli_epi16(bytes, 8)};
  }
  template <int kQuad>
  static void dot_add(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    const signed char* q = kQuad < 4 ? x.first + 8 * kQuad : x.second + 8 * (kQuad - 4);
    const I32 even = _mm_madd_epi16(quad.even, splat_bytes(q));
    const I32 odd = _mm_madd_epi16(quad.odd, splat_bytes(q + 4));
    dot = _mm_add_epi32(dot, _mm_add_epi32(even, odd));
  }
};

}  // namespace

constinit const LinearFloatKernels kLinearBaselineFloats = {&kF32Kernel<Sse2>, &kF16Kernel<Sse2>,
                                                            &kBf16Kernel<Sse2>};
constinit const LinearCpuIsa kLinearBaseline = isa_table<Sse2>();

}  // namespace headrace
