// Packing with SSE2 alone, which every x86-64 has.
#include <emmintrin.h>

#include "ops/packing/pack_blocks_isa.h"

namespace headrace {
namespace {

#include "ops/packing/pack_blocks.inc"

void interleave(const unsigned char* const (&rows)[kRows], int count, Lanes* out) {
  auto* const floats = reinterpret_cast<float*>(out);
  int c = 0;
  for (; c + 4 <= count; c += 4) {  // 4 x 4 at a time
    for (int lane = 0; lane < kRows; lane += 4) {
      __m128 v[4];
      for (int i = 0; i < 4; ++i) {
        v[i] = _mm_loadu_ps(reinterpret_cast<const float*>(rows[lane + i] + 4 * c));
      }
      _MM_TRANSPOSE4_PS(v[0], v[1], v[2], v[3]);
      for (int i = 0; i < 4; ++i) _mm_storeu_ps(floats + (c + i) * kRows + lane, v[i]);
    }
  }
  for (; c < count; ++c) {
    for (int lane = 0; lane < kRows; ++lane) {
      __builtin_memcpy(floats + c * kRows + lane, rows[lane] + 4 * c, 4);
    }
  }
}

}  // namespace

void pack_rows_baseline(const PackRange& range) { pack_rows(range); }

}  // namespace headrace
