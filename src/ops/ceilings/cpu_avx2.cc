#include <immintrin.h>

#include "ops/ceilings/ceiling.h"

namespace headrace {

uint64_t read_all_avx2(const std::byte* data, int64_t bytes) {
  __m256i sums[8] = {};
  for (int64_t i = 0; i < bytes; i += 256) {
    for (int64_t j = 0; j < 8; ++j) {
      sums[j] = _mm256_xor_si256(
          sums[j], _mm256_load_si256(reinterpret_cast<const __m256i*>(data + i + j * 32)));
    }
  }
  for (int j = 1; j < 8; ++j) sums[0] = _mm256_xor_si256(sums[0], sums[j]);
  return static_cast<uint64_t>(_mm256_extract_epi64(sums[0], 0));
}

// Eight sums at a time: sixteen and the factor would not fit the 16 registers.
double multiply_add_avx2_f32(int64_t rounds) {
  constexpr int kSums = 8;
  __m256 sums[kSums];
  for (int i = 0; i < kSums; ++i) sums[i] = _mm256_set1_ps(static_cast<float>(i));
  __m256 factor = _mm256_set1_ps(0.5f);
  for (int64_t round = 0; round < rounds * (kCeilingAccumulators / kSums); ++round) {
    __asm__ volatile("" : "+x"(factor));
    for (__m256& sum : sums) sum = _mm256_fmadd_ps(sum, factor, factor);
  }
  float lanes[8];
  double total = 0;
  for (const __m256& sum : sums) {
    _mm256_storeu_ps(lanes, sum);
    for (const float lane : lanes) total += static_cast<double>(lane);
  }
  return total;
}

}  // namespace headrace
