// linear with AVX-512 F, BW, DQ, VL and no VNNI: 16-bit multiply-add of even and odd columns.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"

struct Avx512Words : Avx512 {
  static constexpr BlockLayout kLayout = BlockLayout::kPairedWords;
  struct Quad {
    I32 even;  // columns 0 and 2 of each quad as words
    I32 odd;   // columns 1 and 3
  };

  static Quad quad(I32 bytes) {
    return {_mm512_and_si512(bytes, _mm512_set1_epi16(255)), _mm512_srli_epi16(bytes, 8)};
  }
  template <int kQuad>
  static void dot_add(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    const signed char* q = kQuad < 4 ? x.first + 8 * kQuad : x.second + 8 * (kQuad - 4);
    const I32 even = _mm512_madd_epi16(quad.even, splat_bytes(q));
    const I32 odd = _mm512_madd_epi16(quad.odd, splat_bytes(q + 4));
    dot = _mm512_add_epi32(dot, _mm512_add_epi32(even, odd));
  }
};

}  // namespace

constinit const LinearFloatKernel kLinearAvx512F32 = kF32Kernel<Avx512>;
constinit const LinearFloatKernel kLinearAvx512F16 = kF16Kernel<Avx512>;
constinit const LinearFloatKernels kLinearAvx512Floats = {&kLinearAvx512F32, &kLinearAvx512F16,
                                                          &kBf16Kernel<Avx512>};
constinit const LinearCpuIsa kLinearAvx512 = isa_table<Avx512Words>();

}  // namespace headrace
