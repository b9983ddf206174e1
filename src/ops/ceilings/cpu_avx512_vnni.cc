#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {

double multiply_add_avx512_vnni(int64_t rounds) {
  __m512i sums[kCeilingAccumulators];
  for (int64_t i = 0; i < kCeilingAccumulators; ++i) {
    sums[i] = _mm512_set1_epi32(static_cast<int>(i));
  }
  __m512i a = _mm512_set1_epi8(3), b = _mm512_set1_epi8(-2);
  for (int64_t round = 0; round < rounds; ++round) {
    // The compiler must not see that every round does the same.
    __asm__ volatile("" : "+v"(a), "+v"(b));
    for (__m512i& sum : sums) sum = _mm512_dpbusd_epi32(sum, a, b);
  }
  double total = 0;
  for (const __m512i& sum : sums) total += _mm512_reduce_add_epi32(sum);
  return total;
}

}  // namespace headrace
