// linear of many rows with AVX-512 VNNI: panels of bytes and vpdpbusd.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx512.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_unpack.inc"

struct Avx512VnniPanels : Avx512 {
  static constexpr BlockLayout kLayout = BlockLayout::kPlanarBytes;
  static constexpr int kPanelRows = 6;
  static constexpr int kPanelGroups = 2;

  static I32 dot_bytes(I32 sum, I32 weights, I32 x) { return _mm512_dpbusd_epi32(sum, weights, x); }
  // 256 dot + value.
  static I32 shift_and_add(I32 dot, int32_t value) {
    return _mm512_add_epi32(_mm512_slli_epi32(dot, 8), splat_int(value));
  }
};

#include "ops/linear/cpu_panels.inc"

}  // namespace

constinit const LinearPanelKernels kLinearAvx512VnniPanels = panel_table<Avx512VnniPanels>();

}  // namespace headrace
