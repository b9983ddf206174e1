// linear with AVX2, FMA and F16C: 16-bit multiply-add of even and odd columns.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx2.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

struct Avx2Words : Avx2 {
  static constexpr BlockLayout kLayout = BlockLayout::kPairedWords;
  struct Quad {
    I32 even;  // columns 0 and 2 of each quad as words
    I32 odd;   // columns 1 and 3
  };

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
constinit const LinearCpuIsa kLinearAvx2 = isa_table<Avx2Words>();

}  // namespace headrace
