// Attention as it is written down: all scores of a head are stored, then all probabilities, then
// multiplied with the values. AVX-512. What the tiled kernels are measured against (`bench ablate
// K1`); nothing chooses it by itself.
#include <immintrin.h>

#include "ops/attention/materialised.h"

namespace headrace {
namespace {

constexpr int kLanes = 16;
constexpr int kRowsTogether = 4;

__m512 load_16(const unsigned char* at, int32_t element) {
  if (element == 0) return _mm512_loadu_ps(at);
  const __m256i bits = _mm256_loadu_si256(reinterpret_cast<const __m256i*>(at));
  if (element == 1) return _mm512_cvtph_ps(bits);
  return _mm512_castsi512_ps(_mm512_slli_epi32(_mm512_cvtepu16_epi32(bits), 16));
}

const unsigned char* block_of(const MaterialisedHead& head, const unsigned char* part,
                              int32_t block) {
  return part + int64_t{head.block_table[block]} * head.block_stride;
}

// exp by 2^n times a polynomial of degree 6 on [-ln 2 / 2, ln 2 / 2].
__m512 exp_16(__m512 x) {
  x = _mm512_max_ps(_mm512_set1_ps(-87.0f), x);  // this way round a NaN stays one
  const __m512 n = _mm512_roundscale_ps(_mm512_mul_ps(x, _mm512_set1_ps(1.44269504f)), 8);
  __m512 r = _mm512_fnmadd_ps(n, _mm512_set1_ps(0.693359375f), x);
  r = _mm512_fnmadd_ps(n, _mm512_set1_ps(-2.12194440e-4f), r);
  __m512 p = _mm512_set1_ps(1.0f / 720);
  constexpr float kTerms[] = {1.0f / 120, 1.0f / 24, 1.0f / 6, 0.5f, 1.0f, 1.0f};
  for (const float term : kTerms) p = _mm512_fmadd_ps(p, r, _mm512_set1_ps(term));
  return _mm512_scalef_ps(p, n);
}

}  // namespace

void materialised_scores(const MaterialisedHead& head, int32_t row_first, int32_t row_last) {
  const int32_t blocks = (head.kv_length + kLanes - 1) / kLanes;
  const int32_t size = head.element == 0 ? 4 : 2;
  for (int32_t block = 0; block < blocks; ++block) {
    const unsigned char* keys = block_of(head, head.keys, block);
    for (int32_t row = row_first; row < row_last; row += kRowsTogether) {
      const int32_t rows = row_last - row < kRowsTogether ? row_last - row : kRowsTogether;
      __m512 sums[kRowsTogether] = {};
      for (int32_t d = 0; d < head.head_dim; ++d) {
        const __m512 key = load_16(keys + d * kLanes * size, head.element);
        for (int32_t r = 0; r < kRowsTogether; ++r) {
          const float* q = head.q + int64_t{row + (r < rows ? r : 0)} * head.q_stride;
          sums[r] = _mm512_fmadd_ps(_mm512_set1_ps(q[d]), key, sums[r]);
        }
      }
      for (int32_t r = 0; r < rows; ++r) {
        _mm512_storeu_ps(head.scores + int64_t{row + r} * head.scores_stride + block * kLanes,
                         _mm512_mul_ps(sums[r], _mm512_set1_ps(head.scale)));
      }
    }
  }
}

void materialised_softmax(const MaterialisedHead& head, int32_t row_first, int32_t row_last) {
  const __m512 none = _mm512_set1_ps(-__builtin_inff());
  const __m512i lane = _mm512_set_epi32(15, 14, 13, 12, 11, 10, 9, 8, 7, 6, 5, 4, 3, 2, 1, 0);
  for (int32_t row = row_first; row < row_last; ++row) {
    float* const scores = head.scores + int64_t{row} * head.scores_stride;
    const int32_t last = head.kv_length - head.row_count + row + 1;
    const int32_t first = head.window > 0 && last > head.window ? last - head.window : 0;
    const auto seen = [&](int32_t at) {
      const __m512i key = _mm512_add_epi32(lane, _mm512_set1_epi32(at));
      return _mm512_cmplt_epi32_mask(key, _mm512_set1_epi32(last)) &
             _mm512_cmpge_epi32_mask(key, _mm512_set1_epi32(first));
    };
    __m512 most = none;
    for (int32_t at = 0; at < head.scores_stride; at += kLanes) {
      most = _mm512_mask_max_ps(most, seen(at), most, _mm512_loadu_ps(scores + at));
    }
    const __m512 largest = _mm512_set1_ps(_mm512_reduce_max_ps(most));
    __m512 total = _mm512_setzero_ps();
    for (int32_t at = 0; at < head.scores_stride; at += kLanes) {
      const __m512 p = _mm512_maskz_mov_ps(
          seen(at), exp_16(_mm512_sub_ps(_mm512_loadu_ps(scores + at), largest)));
      total = _mm512_add_ps(total, p);
      _mm512_storeu_ps(scores + at, p);
    }
    const __m512 inverse = _mm512_set1_ps(1.0f / _mm512_reduce_add_ps(total));
    for (int32_t at = 0; at < head.scores_stride; at += kLanes) {
      _mm512_storeu_ps(scores + at, _mm512_mul_ps(_mm512_loadu_ps(scores + at), inverse));
    }
  }
}

namespace {

// Adds keys [first, last) to the sums of `rows` rows.
template <int kColumns>
void add_values(const MaterialisedHead& head, int32_t row, int32_t rows, int32_t column,
                int32_t first, int32_t last, __m512 (&sums)[kRowsTogether][kColumns]) {
  const int32_t size = head.element == 0 ? 4 : 2;
  for (int32_t key = first; key < last; ++key) {
    const unsigned char* value =
        block_of(head, head.values, key / kLanes) + (key % kLanes * head.head_dim + column) * size;
    for (int32_t c = 0; c < kColumns && column + c * kLanes < head.head_dim; ++c) {
      const __m512 v = load_16(value + c * kLanes * size, head.element);
      for (int32_t r = 0; r < rows; ++r) {
        const float p = head.scores[int64_t{row + r} * head.scores_stride + key];
        sums[r][c] = _mm512_fmadd_ps(_mm512_set1_ps(p), v, sums[r][c]);
      }
    }
  }
}

}  // namespace

void materialised_values(const MaterialisedHead& head, int32_t row_first, int32_t row_last) {
  constexpr int kColumns = 4;  // registers of 16 components
  for (int32_t row = row_first; row < row_last; row += kRowsTogether) {
    const int32_t rows = row_last - row < kRowsTogether ? row_last - row : kRowsTogether;
    const int32_t seen = head.kv_length - head.row_count + row + 1;  // by the first row
    for (int32_t column = 0; column < head.head_dim; column += kColumns * kLanes) {
      __m512 sums[kRowsTogether][kColumns] = {};
      if (rows == kRowsTogether) {
        add_values(head, row, kRowsTogether, column, 0, seen, sums);
      } else {
        add_values(head, row, rows, column, 0, seen, sums);
      }
      // What the rows below see beyond that, each for itself.
      for (int32_t r = 1; r < rows; ++r) {
        __m512 one[kRowsTogether][kColumns];
        for (int c = 0; c < kColumns; ++c) one[0][c] = sums[r][c];
        add_values(head, row + r, 1, column, seen, seen + r, one);
        for (int c = 0; c < kColumns; ++c) sums[r][c] = one[0][c];
      }
      for (int32_t r = 0; r < rows; ++r) {
        float* out = head.out + int64_t{row + r} * head.out_stride + column;
        for (int32_t c = 0; c < kColumns && column + c * kLanes < head.head_dim; ++c) {
          _mm512_storeu_ps(out + c * kLanes, sums[r][c]);
        }
      }
    }
  }
}

}  // namespace headrace
