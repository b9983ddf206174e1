// The bodies of the lora_linear kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/linear/lora_linear_rows.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Factors are read once, so from memory: what lies so far ahead is asked for. (40 MB of factors at
// 8 rows: 4.0 ms without, 3.4 ms with 4 KiB, which is what one thread reads.)
constexpr int64_t kLoraAheadBytes = 4096;

template <bool kHalf>
inline Vec16 load_lora(const std::byte* row, int64_t column) {
  const std::byte* const at = row + (kHalf ? 2 : 4) * column;
  _mm_prefetch(reinterpret_cast<const char*>(at + kLoraAheadBytes), _MM_HINT_T0);
  if constexpr (kHalf) return load_f16(at);
  return load(reinterpret_cast<const float*>(at));
}

// kRows rows of x by kRanks rows of A. How many go together changes no bit.
template <bool kHalf, int kRows, int kRanks>
void shrink_block(const LoraShrink& s, int64_t row, int64_t rank) {
  const float* x[kRows];
  const std::byte* a[kRanks];
  Vec16 sums[kRows][kRanks];
  for (int i = 0; i < kRows; ++i) x[i] = s.x + (s.rows[row + i] - s.first_row) * s.x_stride;
  for (int j = 0; j < kRanks; ++j) a[j] = s.a + (rank + j) * s.a_stride;
  for (auto& of_row : sums) {
    for (Vec16& sum : of_row) sum = zero();
  }
  const auto add_columns = [&](int64_t k, const Vec16(&values)[kRows]) {
    for (int j = 0; j < kRanks; ++j) {
      const Vec16 weights = load_lora<kHalf>(a[j], k);
      for (int i = 0; i < kRows; ++i) sums[i][j] = fma(values[i], weights, sums[i][j]);
    }
  };
  const int64_t whole = s.columns / 16 * 16;
  Vec16 values[kRows];
  for (int64_t k = 0; k < whole; k += 16) {
    for (int i = 0; i < kRows; ++i) values[i] = load(x[i] + k);
    add_columns(k, values);
  }
  if (whole < s.columns) {  // what lies behind a row of A is zero
    for (int i = 0; i < kRows; ++i) values[i] = load_first(x[i] + whole, s.columns - whole, 0.0f);
    add_columns(whole, values);
  }
  for (int i = 0; i < kRows; ++i) {
    float* const t = s.t + (row + i) * s.t_stride + rank;
    for (int j = 0; j < kRanks; ++j) t[j] = s.scale * sum_of(sums[i][j]);
  }
}

template <bool kHalf, int kRows, int kRanks>
void shrink_rows(const LoraShrink& s, int64_t row) {
  int64_t rank = 0;
  for (; rank + kRanks <= s.ranks; rank += kRanks) shrink_block<kHalf, kRows, kRanks>(s, row, rank);
  for (; rank < s.ranks; ++rank) shrink_block<kHalf, kRows, 1>(s, row, rank);
}

template <bool kHalf>
void shrink(const LoraShrink& s) {
  int64_t row = 0;
  for (; row + 2 <= s.row_count; row += 2) shrink_rows<kHalf, 2, 2>(s, row);
  if (row < s.row_count) shrink_rows<kHalf, 1, 4>(s, row);
}

template <bool kHalf, int kRows>
void expand_rows(const LoraExpand& e, int64_t row) {
  const float* t[kRows];
  float* y[kRows];
  for (int i = 0; i < kRows; ++i) {
    t[i] = e.t + (row + i) * e.t_stride;
    y[i] = e.y + (e.rows[row + i] - e.first_row) * e.y_stride;
  }
  const std::byte* panel = e.b;
  for (int64_t n = 0; n < e.columns; n += 16, panel += e.b_stride) {
    Vec16 sums[kRows];
    for (Vec16& sum : sums) sum = zero();
    for (int64_t r = 0; r < e.ranks; ++r) {
      const Vec16 weights = load_lora<kHalf>(panel, 16 * r);
      for (int i = 0; i < kRows; ++i) sums[i] = fma(broadcast(t[i][r]), weights, sums[i]);
    }
    const int64_t left = e.columns - n;
    for (int i = 0; i < kRows; ++i) {
      store_up_to(y[i] + n, add(load_up_to(y[i] + n, left, 0.0f), sums[i]), left);
    }
  }
}

template <bool kHalf>
void expand(const LoraExpand& e) {
  int64_t row = 0;
  for (; row + 4 <= e.row_count; row += 4) expand_rows<kHalf, 4>(e, row);
  for (; row + 2 <= e.row_count; row += 2) expand_rows<kHalf, 2>(e, row);
  if (row < e.row_count) expand_rows<kHalf, 1>(e, row);
}

void shrink_any(const LoraShrink& s) { s.half ? shrink<true>(s) : shrink<false>(s); }
void expand_any(const LoraExpand& e) { e.half ? expand<true>(e) : expand<false>(e); }

}  // namespace
}  // namespace headrace
