// linear with AVX-512 VNNI: vpdpbusd of unsigned weights with the high and the low bytes of x.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_quantise_rows_avx512.inc"

// High bytes, and low ones where a block is wide. |sum| stays below 2^29: 255 * 32512 * 32 columns.
struct Avx512Vnni : Avx512 {
  static constexpr BlockLayout kLayout = BlockLayout::kPlanarBytes;
  using Quad = I32;

  static Quad quad(I32 bytes) { return bytes; }
  template <int kQuad>
  static void dot_add(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    dot = _mm512_dpbusd_epi32(dot, quad, splat_bytes(x.first + 4 * kQuad));
  }
  template <int kQuad>
  static void dot_add_low(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    dot = _mm512_dpbusd_epi32(dot, quad, splat_bytes(x.second + 4 * kQuad));
  }
  // 256 dot + value.
  static I32 shift_and_add(I32 dot, int32_t value) {
    return _mm512_add_epi32(_mm512_slli_epi32(dot, 8), splat_int(value));
  }
};

}  // namespace

constinit const LinearCpuIsa kLinearAvx512Vnni =
    isa_table<Avx512Vnni>(&kLinearAvx512VnniPanels, quantise_planar_row);
// Few rows are no work for tiles of 16: they are the same code.
constinit const LinearCpuIsa kLinearAmxBf16 =
    isa_table<Avx512Vnni>(&kLinearAmxUnpacked, quantise_planar_row);

}  // namespace headrace
