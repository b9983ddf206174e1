// linear of many rows with AVX-512 VNNI: panels of bytes and vpdpbusd.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear_cpu_isa.h"
#include "ops/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear_cpu_avx512.inc"
#include "ops/linear_cpu_tiles.inc"

struct Avx512VnniPanels : Avx512 {
  static constexpr BlockLayout kLayout = BlockLayout::kPlanarBytes;

  static F32 load(const float* at) { return _mm512_loadu_ps(at); }
  static void store(float* at, F32 v) { _mm512_storeu_ps(at, v); }
  static void store_bytes(unsigned char* at, I32 v) { _mm512_storeu_si512(at, v); }
  static F32 negate(F32 v) { return _mm512_xor_ps(v, _mm512_set1_ps(-0.0f)); }
  template <int kMore>
  static I32 add_to_bytes(I32 bytes) {
    if constexpr (kMore == 0) return bytes;
    return _mm512_add_epi8(bytes, _mm512_set1_epi8(static_cast<char>(kMore)));
  }
  static I32 dot_bytes(I32 sum, I32 weights, I32 x) { return _mm512_dpbusd_epi32(sum, weights, x); }
  // 256 dot + value.
  static I32 shift_and_add(I32 dot, int32_t value) {
    return _mm512_add_epi32(_mm512_slli_epi32(dot, 8), splat_int(value));
  }
};

#include "ops/linear_cpu_panels.inc"

}  // namespace

constinit const LinearPanelKernels kLinearAvx512VnniPanels = panel_table<Avx512VnniPanels>();

}  // namespace headrace
