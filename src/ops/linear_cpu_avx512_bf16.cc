// linear with AVX512-BF16: vdpbf16ps multiplies pairs of BF16 columns and rounds as two fused
// multiply-adds in f32, the odd column first, so its bits are those of PairStep.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

#include "ops/linear_cpu_float.inc"

struct DotStep {
  using Vector = Avx512;
  using F32 = __m512;
  using Weights = __m512i;
  static constexpr int kColumns = 2;
  static constexpr int kWeightBytes = kGroupLanes * 4;
  static constexpr int kValueBytes = 2;
  // Sums and weights in 32 registers; x comes from memory with the instruction.
  static constexpr int groups(int rows) { return rows <= 4 ? 6 : 3; }
  static Weights load(const unsigned char* at, int) { return _mm512_loadu_si512(at); }
  template <int kRows>
  static F32 add(F32 acc, Weights w, const unsigned char* x, int r) {
    int32_t pair;
    __builtin_memcpy(&pair, x + r * 4, sizeof pair);
    return _mm512_dpbf16_ps(acc, (__m512bh)w, (__m512bh)_mm512_set1_epi32(pair));
  }
};

// Out: [k / 2][rows] pairs of BF16, the even column in the low half.
void stage_pairs(const float* x, int64_t stride, int64_t rows, int64_t k, void* out) {
  auto* to = static_cast<uint32_t*>(out);
  for (int64_t r = 0; r < rows; ++r) {
    const float* row = x + r * stride;
    for (int64_t p = 0; p < k / 2; ++p) {
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
