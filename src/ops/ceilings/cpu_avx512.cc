#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {

uint64_t read_all_avx512(const std::byte* data, int64_t bytes) {
  __m512i sums[8] = {};
  for (int64_t i = 0; i < bytes; i += 512) {
    for (int64_t j = 0; j < 8; ++j) {
      sums[j] = _mm512_xor_si512(sums[j], _mm512_load_si512(data + i + j * 64));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm512_xor_si512(sums[0], sums[j]);
  return static_cast<uint64_t>(_mm512_reduce_add_epi64(sums[0]));
}

double multiply_add_avx512_f32(int64_t rounds) {
  __m512 sums[kCeilingAccumulators];
  for (int64_t i = 0; i < kCeilingAccumulators; ++i) {
    sums[i] = _mm512_set1_ps(static_cast<float>(i));
  }
  __m512 factor = _mm512_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds; ++round) {
    // The compiler must not see that every round does the same.
    __asm__ volatile("" : "+v"(factor));
    for (__m512& sum : sums) sum = _mm512_fmadd_ps(sum, factor, factor);
  }
  double total = 0;
  for (const __m512& sum : sums) total += static_cast<double>(_mm512_reduce_add_ps(sum));
  return total;
}

}  // namespace headrace
