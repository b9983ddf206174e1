// linear with AVX512-BF16: vdpbf16ps multiplies pairs of BF16 columns and rounds as two fused
// multiply-adds in f32, the odd column first, so its bits are those of PairStep.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

struct DotStep {
  using Vector = Avx512;
  using F32 = __m512;
  using Weights = __m512i;
  static constexpr int kColumns = 2;
  static constexpr int kWeightBytes = kGroupLanes * 4;
  static constexpr int kValueBytes = 2;
  // Sums and weights in 32 registers; x comes from memory with the instruction. One row: two
  // streams cover vdpbf16ps' latency up to 120 GB/s on two cores (one stream: 78), and more of them
  // read slower.
  static constexpr int groups(int rows) { return rows == 1 ? 2 : rows <= 4 ? 6 : 3; }
  static Weights load(const unsigned char* at, int) { return _mm512_loadu_si512(at); }
  template <int kRows>
  static F32 add(F32 acc, Weights w, const unsigned char* x, int r) {
    int32_t pair;
    __builtin_memcpy(&pair, x + r * 4, sizeof pair);
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
  }
};

// 16 pairs of columns of a row.
__m512i load_pairs(const float* x) {
  return (__m512i)_mm512_cvtne2ps_pbh(_mm512_loadu_ps(x + 16), _mm512_loadu_ps(x));
}

// 4 rows of 16 dwords to 16 columns of 4: lane L of out[i] is column 4 L + i.
void transpose_fours(const __m512i* rows, __m512i* out) {
  const __m512i low01 = _mm512_unpacklo_epi32(rows[0], rows[1]);
  const __m512i high01 = _mm512_unpackhi_epi32(rows[0], rows[1]);
  const __m512i low23 = _mm512_unpacklo_epi32(rows[2], rows[3]);
  const __m512i high23 = _mm512_unpackhi_epi32(rows[2], rows[3]);
  out[0] = _mm512_unpacklo_epi64(low01, low23);
  out[1] = _mm512_unpackhi_epi64(low01, low23);
  out[2] = _mm512_unpacklo_epi64(high01, high23);
  out[3] = _mm512_unpackhi_epi64(high01, high23);
}

// 16 pairs of columns of 8 rows. Out: [16][8]
void stage_eight_rows(const float* x, int64_t stride, uint32_t* out) {
  __m512i fours[2][4];
  for (int half = 0; half < 2; ++half) {
    __m512i rows[4];
    for (int r = 0; r < 4; ++r) rows[r] = load_pairs(x + (half * 4 + r) * stride);
    transpose_fours(rows, fours[half]);
  }
  for (int i = 0; i < 4; ++i) {
    alignas(64) uint32_t lanes[2][16];
    _mm512_store_si512(lanes[0], fours[0][i]);
    _mm512_store_si512(lanes[1], fours[1][i]);
    for (int lane = 0; lane < 4; ++lane) {
      __builtin_memcpy(out + (4 * lane + i) * 8, lanes[0] + 4 * lane, 16);
      __builtin_memcpy(out + (4 * lane + i) * 8 + 4, lanes[1] + 4 * lane, 16);
    }
  }
}

// Out: [k / 2][rows] pairs of BF16, the even column in the low half.
void stage_pairs(const float* x, int64_t stride, int64_t rows, int64_t k, void* out) {
  auto* to = static_cast<uint32_t*>(out);
  int64_t staged = 0;  // pairs of every row
  if (rows == 8) {
    for (; staged + 16 <= k / 2; staged += 16) {
      stage_eight_rows(x + 2 * staged, stride, to + staged * 8);
    }
  }
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * stride;
    for (int64_t p = staged; p < k / 2; ++p) {
      to[p * rows + r] = bf16_bits(row[2 * p]) | bf16_bits(row[2 * p + 1]) << 16;
    }
    if (k % 2 != 0) to[k / 2 * rows + r] = bf16_bits(row[k - 1]);
  }
}

}  // namespace

namespace {
constexpr LinearFloatKernel kDots = float_kernel<DotStep>(stage_pairs);
}  // namespace
constinit const LinearFloatKernels kLinearAvx512Bf16Floats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                              &kDots};

}  // namespace headrace
