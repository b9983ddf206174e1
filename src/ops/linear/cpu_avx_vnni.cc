// linear with AVX-VNNI: vpdpbusd on 256 bits, on CPUs without AVX-512.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx2.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_quantise_rows_avx2.inc"
#include "ops/linear/cpu_unpack.inc"

// High bytes, and low ones where a block is wide, as Avx512Vnni has them.
struct AvxVnni : Avx2 {
  static constexpr BlockLayout kLayout = BlockLayout::kPlanarBytes;
  static constexpr int kPanelRows = 3;
  static constexpr int kPanelGroups = 1;
  using Quad = I32;

  static Quad quad(I32 bytes) { return bytes; }
  template <int kQuad>
  static void dot_add(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    dot = _mm256_dpbusd_avx_epi32(dot, quad, splat_bytes(x.first + 4 * kQuad));
  }
  template <int kQuad>
  static void dot_add_low(I32& dot, const Quad& quad, const QuantisedBlock& x) {
    dot = _mm256_dpbusd_avx_epi32(dot, quad, splat_bytes(x.second + 4 * kQuad));
  }
  static I32 dot_bytes(I32 sum, I32 weights, I32 x) {
    return _mm256_dpbusd_avx_epi32(sum, weights, x);
  }
  // 256 dot + value.
  static I32 shift_and_add(I32 dot, int32_t value) {
    return _mm256_add_epi32(_mm256_slli_epi32(dot, 8), splat_int(value));
  }
};

#include "ops/linear/cpu_panels.inc"

constexpr LinearPanelKernels kPanels = panel_table<AvxVnni>();

}  // namespace

constinit const LinearCpuIsa kLinearAvxVnni = isa_table<AvxVnni>(&kPanels, quantise_planar_row);

}  // namespace headrace
