// linear with AVX2, FMA and F16C: vpmaddubsw, pairs of bytes summed in words.
// Compiled with those flags: include nothing that has inline functions shared with other files.
#include <immintrin.h>

#include "ops/linear/cpu_isa.h"
#include "ops/packing/packed_format.h"

namespace headrace {
namespace {

#include "ops/linear/cpu_avx2.inc"
#include "ops/linear/cpu_tiles.inc"

#include "ops/linear/cpu_float.inc"
#include "ops/linear/cpu_quantise_rows_avx2.inc"
#include "ops/linear/cpu_unpack.inc"

// vpmaddubsw on high bytes, and on low ones where a block is wide, as the VNNI kernels have them.
struct Avx2Pairs : Avx2 {
  static constexpr BlockLayout kLayout = BlockLayout::kPlanarBytes;
  static constexpr bool kSumsPairs = true;
  static constexpr int kPanelRows = 3;
  static constexpr int kPanelGroups = 1;

  // Words: unsigned bytes times signed ones, two neighbours each.
  static I32 multiply_pairs(I32 weights, I32 x) { return _mm256_maddubs_epi16(weights, x); }
  // The compiler would add all products of a block as a tree, from memory.
  static I32 add_words(I32 a, I32 b) {
    I32 sum = _mm256_add_epi16(a, b);
    __asm__("" : "+x"(sum));
    return sum;
  }
  // dot + kFactor times two neighbours each.
  template <int kFactor>
  static I32 add_pairs(I32 dot, I32 words) {
    return _mm256_add_epi32(dot, _mm256_madd_epi16(words, _mm256_set1_epi16(kFactor)));
  }
  // 256 dot + value.
  static I32 shift_and_add(I32 dot, int32_t value) {
    return _mm256_add_epi32(_mm256_slli_epi32(dot, 8), splat_int(value));
  }
};

#include "ops/linear/cpu_panels.inc"

constexpr LinearPanelKernels kPanels = panel_table<Avx2Pairs>();

}  // namespace

constinit const LinearFloatKernels kLinearAvx2Floats = {&kF32Kernel<Avx2>, &kF16Kernel<Avx2>,
                                                        &kBf16Kernel<Avx2>};
constinit const LinearCpuIsa kLinearAvx2 = isa_table<Avx2Pairs>(&kPanels, quantise_planar_row);

}  // namespace headrace
