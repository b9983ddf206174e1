#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {

// Eight sums at a time, as in multiply_add_avx2_f32().
double multiply_add_avx_vnni(int64_t rounds) {
  constexpr int kSums = 8;
  __m256i sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_epi32(i);
  __m256i a = _mm256_set1_epi8(3), b = _mm256_set1_epi8(-2);
  for (int64_t round = 0; round < rounds * (kCeilingAccumulators / kSums); ++round) {
    __asm__ volatile("" : "+x"(a), "+x"(b));
    for (__m256i& sum : sums) sum = _mm256_dpbusd_avx_epi32(sum, a, b);
  }
  int32_t lanes[8];
  double total = 0;
  for (const __m256i& sum : sums) {
    _mm256_storeu_si256(reinterpret_cast<__m256i*>(lanes), sum);
    for (const int32_t lane : lanes) total += lane;
  }
  return total;
}

}  // namespace headrace
