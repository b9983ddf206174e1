#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {

double multiply_add_avx512_bf16(int64_t rounds) {
  __m512 sums[kCeilingAccumulators];
  for (int64_t i = 0; i < kCeilingAccumulators; ++i) {
    sums[i] = _mm512_set1_ps(static_cast<float>(i));
  }
  __m512i bits = _mm512_set1_epi16(0x3f00);  // 0.5
  for (int64_t round = 0; round < rounds; ++round) {
    // The compiler must not see that every round does the same.
    __asm__ volatile("" : "+v"(bits));
    const auto factors = (__m512bh)bits;
    for (__m512& sum : sums) sum = _mm512_dpbf16_ps(sum, factors, factors);
  }
  double total = 0;
  for (const __m512& sum : sums) total += static_cast<double>(_mm512_reduce_add_ps(sum));
  return total;
}

}  // namespace headrace
