// linear with AVX-512 VNNI: vpdpbusd of unsigned weights with the high and the low bytes of x.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

// Both bytes of x: two sums, joined by a shift at the end of the block. |sum| stays below 2^29:
// 255 * 32512 * 32 columns.
struct Avx512Vnni : Avx512 {
  static constexpr ActivationPolicy kActivations{.levels = 32512,
                                                 .layout = BlockLayout::kPlanarBytes};
  using Quad = I32;
  struct Dot {
    I32 high;
    I32 low;
  };

  static Quad quad(I32 bytes) { return bytes; }
  static Dot dot_start(int32_t value) { return {_mm512_setzero_si512(), _mm512_set1_epi32(value)}; }
  static void dot_add(Dot& dot, const Quad& quad, const signed char* q, int index) {
    dot.high = _mm512_dpbusd_epi32(dot.high, quad, splat_bytes(q + 4 * index));
    dot.low = _mm512_dpbusd_epi32(dot.low, quad, splat_bytes(q + kBlockColumns + 4 * index));
  }
  static F32 dot_finish(const Dot& dot) {
    return _mm512_cvtepi32_ps(_mm512_add_epi32(_mm512_slli_epi32(dot.high, 8), dot.low));
  }
};

struct Avx512VnniInt8 : Avx512Vnni {
  static constexpr ActivationPolicy kActivations{.levels = 127,
                                                 .layout = BlockLayout::kPlanarBytes};
  using Dot = I32;
  static Dot dot_start(int32_t value) { return _mm512_set1_epi32(value); }
  static void dot_add(Dot& dot, const Quad& quad, const signed char* q, int index) {
    dot = _mm512_dpbusd_epi32(dot, quad, splat_bytes(q + 4 * index));
  }
  static F32 dot_finish(Dot dot) { return _mm512_cvtepi32_ps(dot); }
};

constexpr LinearRangeKernel kInt8Kernels[kPackedFormatCount] = {
    quantised_range<Avx512VnniInt8, kPackedQ8_0>, quantised_range<Avx512VnniInt8, kPackedQ4_0>,
    quantised_range<Avx512VnniInt8, kPackedQ4_1>};

}  // namespace

constinit const LinearCpuIsa kLinearAvx512Vnni = isa_table<Avx512Vnni>();
constinit const LinearCpuIsa kLinearAvx512VnniInt8 = isa_table<Avx512VnniInt8>(kInt8Kernels);

}  // namespace headrace
