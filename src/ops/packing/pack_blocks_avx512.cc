// Packing with AVX-512: a register is a dword of all 16 rows.
#include <immintrin.h>

#include "ops/packing/pack_blocks_isa.h"

namespace headrace {
namespace {

#include "ops/packing/pack_blocks.inc"

// Dwords 0 to 3 at `at` bytes of rows i, i + 4, i + 8, i + 12, side by side.
__m512i load_quarter(const unsigned char* const (&rows)[kRows], int i, int at) {
  const auto load = [&](int row) {
    return _mm_loadu_si128(reinterpret_cast<const __m128i*>(rows[row] + at));
  };
  __m512i v = _mm512_castsi128_si512(load(i));
  v = _mm512_inserti32x4(v, load(i + 4), 1);
  v = _mm512_inserti32x4(v, load(i + 8), 2);
  return _mm512_inserti32x4(v, load(i + 12), 3);
}

void interleave(const unsigned char* const (&rows)[kRows], int count, Lanes* out) {
  int c = 0;
  for (; c + 4 <= count; c += 4) {  // four 4 x 4 at a time
    const __m512i a0 = load_quarter(rows, 0, 4 * c), a1 = load_quarter(rows, 1, 4 * c);
    const __m512i a2 = load_quarter(rows, 2, 4 * c), a3 = load_quarter(rows, 3, 4 * c);
    const __m512i low01 = _mm512_unpacklo_epi32(a0, a1), low23 = _mm512_unpacklo_epi32(a2, a3);
    const __m512i high01 = _mm512_unpackhi_epi32(a0, a1), high23 = _mm512_unpackhi_epi32(a2, a3);
    // Lane 4 q + i of each result is of quarter q's row i, which is row 4 q + i.
    _mm512_storeu_si512(out + c, _mm512_unpacklo_epi64(low01, low23));
    _mm512_storeu_si512(out + c + 1, _mm512_unpackhi_epi64(low01, low23));
    _mm512_storeu_si512(out + c + 2, _mm512_unpacklo_epi64(high01, high23));
    _mm512_storeu_si512(out + c + 3, _mm512_unpackhi_epi64(high01, high23));
  }
  for (; c < count; ++c) {
    for (int lane = 0; lane < kRows; ++lane) {
      __builtin_memcpy(reinterpret_cast<unsigned char*>(out + c) + 4 * lane, rows[lane] + 4 * c, 4);
    }
  }
}

}  // namespace

void pack_rows_avx512(const PackRange& range) { pack_rows(range); }

}  // namespace headrace
