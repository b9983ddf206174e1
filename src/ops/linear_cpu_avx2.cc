// linear with AVX2, FMA and F16C: 8 lanes, so a group of 16 rows is two vectors.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_float.inc"

struct F32Weight {
  float value;
};
struct F16Weight {
  uint16_t bits;
};

struct Avx2 {
  using F32 = __m256;
  using I32 = __m256i;
  using F32Element = F32Weight;
  using F16Element = F16Weight;
  static constexpr int kLanes = 8;
  static constexpr int kTileRows = 4;  // 4 integer and 4 float sums, 4 vectors of weights
  static constexpr int kFloatTileRows = 4;
  static constexpr int float_groups(int rows) { return rows == 1 ? 3 : rows == 2 ? 2 : 1; }
  static constexpr BlockLayout kLayout = BlockLayout::kPairedWords;
  struct Quad {
    I32 even;  // columns 0 and 2 of each quad as words
    I32 odd;   // columns 1 and 3
  };

  static F32 zero() { return _mm256_setzero_ps(); }
  static I32 splat_int(int32_t value) { return _mm256_set1_epi32(value); }
  static F32 splat(const float* at) { return _mm256_broadcast_ss(at); }
  static F32 add(F32 a, F32 b) { return _mm256_add_ps(a, b); }
  static F32 mul(F32 a, F32 b) { return _mm256_mul_ps(a, b); }
  static F32 fma(F32 a, F32 b, F32 c) { return _mm256_fmadd_ps(a, b, c); }
  static F32 fnma(F32 a, F32 b, F32 c) { return _mm256_fnmadd_ps(a, b, c); }
  static F32 to_float(I32 v) { return _mm256_cvtepi32_ps(v); }

  static I32 first(int count) {
    const I32 lanes = _mm256_setr_epi32(0, 1, 2, 3, 4, 5, 6, 7);
    return _mm256_cmpgt_epi32(_mm256_set1_epi32(count), lanes);
  }
  static F32 load_some(const float* at, int count) {
    return count == kLanes ? _mm256_loadu_ps(at) : _mm256_maskload_ps(at, first(count));
  }
  static void store_some(float* at, F32 v, int count) {
    if (count == kLanes) {
      _mm256_storeu_ps(at, v);
    } else {
      _mm256_maskstore_ps(at, first(count), v);
    }
  }

  static F32 load_half(const void* at) {
    return _mm256_cvtph_ps(_mm_loadu_si128(static_cast<const __m128i*>(at)));
  }
  static F32 load_element(const F32Weight* at) { return _mm256_loadu_ps(&at->value); }
  static F32 load_element(const F16Weight* at) { return load_half(at); }
  // The low and the high 16 bits of each lane as BF16.
  static F32 low_half(I32 pairs) { return _mm256_castsi256_ps(_mm256_slli_epi32(pairs, 16)); }
  static F32 high_half(I32 pairs) {
    return _mm256_castsi256_ps(_mm256_and_si256(pairs, _mm256_set1_epi32(-65536)));
  }
  static I32 load_bytes(const unsigned char* at) {
    return _mm256_loadu_si256(reinterpret_cast<const I32*>(at));
  }
  // 8 integers of 8 bits.
  static I32 load_unsigned(const unsigned char* at) {
    return _mm256_cvtepu8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  static I32 load_signed(const unsigned char* at) {
    return _mm256_cvtepi8_epi32(_mm_loadl_epi64(reinterpret_cast<const __m128i*>(at)));
  }
  // Each byte shifted down by kShift, and `mask`.
  template <int kShift>
  static I32 field(I32 raw, int mask) {
    return _mm256_and_si256(_mm256_srli_epi16(raw, kShift),
                            _mm256_set1_epi8(static_cast<char>(mask)));
  }
  // Each byte of `low` or that of `raw` shifted down by kShift (up if negative) and `mask`.
  template <int kShift>
  static I32 with_field(I32 low, I32 raw, int mask) {
    if constexpr (kShift >= 0) {
      raw = _mm256_srli_epi16(raw, kShift);
    } else {
      raw = _mm256_slli_epi16(raw, -kShift);
    }
    return _mm256_or_si256(low, _mm256_and_si256(raw, _mm256_set1_epi8(static_cast<char>(mask))));
  }
  static I32 iq4_values(I32 index) {
    const __m128i values = _mm_setr_epi8(1, 24, 45, 63, 79, 93, 106, 118, -127, -115, -103, -90,
                                         -75, -59, -39, -15);  // + 128
    return _mm256_shuffle_epi8(_mm256_broadcastsi128_si256(values), index);
  }
  static I32 splat_bytes(const signed char* at) {
    int32_t word;
    __builtin_memcpy(&word, at, sizeof word);
    return _mm256_set1_epi32(word);
  }

  static Quad quad(I32 bytes) {
    return {_mm256_and_si256(bytes, _mm256_set1_epi16(255)), _mm256_srli_epi16(bytes, 8)};
  }
  template <int kQuad>
  static void dot_add(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    const signed char* q = kQuad < 4 ? x.first + 8 * kQuad : x.second + 8 * (kQuad - 4);
    const I32 even = _mm256_madd_epi16(quad.even, splat_bytes(q));
    const I32 odd = _mm256_madd_epi16(quad.odd, splat_bytes(q + 4));
    dot = _mm256_add_epi32(dot, _mm256_add_epi32(even, odd));
  }
};

}  // namespace

constinit const LinearFloatKernels kLinearAvx2Floats = {&kF32Kernel<Avx2>, &kF16Kernel<Avx2>,
                                                        &kBf16Kernel<Avx2>};
constinit const LinearCpuIsa kLinearAvx2 = isa_table<Avx2>();

}  // namespace headrace
