// The body of the ssd_scan kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/ssd_scan_head.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

// Columns [column, column + width) of a state, [N, width] dense: 16 KiB at N 128, which stay in the
// first cache from row to row.
struct SsdBlock {
  float* state;
  int64_t column;
  int64_t width;
};

void copy_numbers(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    store_up_to(to + i, load_up_to(from + i, count - i, 0.0f), count - i);
  }
}

// One row over a block of kVecs vectors a line; kWhole: all lanes are there.
template <int kVecs, bool kWhole>
void advance_row(const SsdHead& a, const SsdBlock& block, int64_t t) {
  const float* b = a.b + t * a.xbc_stride;
  const float* c = a.c + t * a.xbc_stride;
  const int64_t width = kWhole ? kVecs * 16 : block.width;
  const auto lanes = [&](int n) { return kWhole ? int64_t{16} : width - 16 * n; };
  const Vec16 decay = broadcast(a.decay[t * a.dt_stride]);
  const Vec16 dt = broadcast(a.dt[t * a.dt_stride]);
  Vec16 taken[kVecs], even[kVecs], odd[kVecs];
  for (int n = 0; n < kVecs; ++n) {
    const float* x = a.x + t * a.xbc_stride + block.column + 16 * n;
    taken[n] = mul(dt, load_up_to(x, lanes(n), 0.0f));
    even[n] = odd[n] = zero();
  }
  // The next component of the state, and what it adds to a sum.
  const auto advance = [&](int64_t i, Vec16(&sums)[kVecs]) {
    const Vec16 in = broadcast(b[i]), out = broadcast(c[i]);
    for (int n = 0; n < kVecs; ++n) {
      float* const at = block.state + i * width + 16 * n;
      const Vec16 s = fma(in, taken[n], mul(decay, load_up_to(at, lanes(n), 0.0f)));
      store_up_to(at, s, lanes(n));
      sums[n] = fma(out, s, sums[n]);
    }
  };
  int64_t i = 0;
  for (; i + 1 < a.state_dim; i += 2) {
    advance(i, even);
    advance(i + 1, odd);
  }
  if (i < a.state_dim) advance(i, even);
  for (int n = 0; n < kVecs; ++n) {
    const Vec16 x = load_up_to(a.x + t * a.xbc_stride + block.column + 16 * n, lanes(n), 0.0f);
    const Vec16 y = fma(broadcast(a.skip), x, add(even[n], odd[n]));
    store_up_to(a.out + t * a.out_stride + block.column + 16 * n, y, lanes(n));
  }
}

void advance_row(const SsdHead& a, const SsdBlock& block, int64_t t) {
  if (block.width == 32) return advance_row<2, true>(a, block, t);
  if (block.width == 16) return advance_row<1, true>(a, block, t);
  if (block.width > 16) return advance_row<2, false>(a, block, t);
  advance_row<1, false>(a, block, t);
}

void advance_block(const SsdHead& a, const SsdBlock& block, int64_t offset) {
  const int64_t count = a.state_dim * block.width;
  if (a.begins) {
    for (int64_t i = 0; i < count; i += 16) store_up_to(block.state + i, zero(), count - i);
  }
  int64_t saved = 0;
  for (int64_t t = 0; t < a.rows; ++t) {
    advance_row(a, block, t);
    while (saved < a.save_count && a.saves[saved].row == t) {
      copy_numbers(block.state, a.saves[saved++].state + offset, count);
    }
  }
}

void ssd_head(const SsdHead& a) {
  constexpr int64_t kColumns = 32;  // kSsdColumns
  for (int64_t column = 0; column < a.head_dim; column += kColumns) {
    const int64_t left = a.head_dim - column;
    const int64_t offset = column * a.state_dim;
    advance_block(a, {a.state + offset, column, left < kColumns ? left : kColumns}, offset);
  }
}

}  // namespace
}  // namespace headrace
