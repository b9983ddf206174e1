// The body of the wkv7 kernels. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

#include "ops/states/wkv7_head.h"
#include "ops/vec16_math.h"

namespace headrace {
namespace {

constexpr int64_t kWkv7DimMax = 256;  // kWkv7HeadDimMax
constexpr int64_t kWkv7Block = 32;    // kWkv7Columns

// What a row is made of, of one head.
struct Wkv7Row {
  alignas(64) float decay[kWkv7DimMax];
  float key[kWkv7DimMax];      // what is taken in under
  float removal[kWkv7DimMax];  // kk, of length 1
  float back[kWkv7DimMax];     // kk a
  float value[kWkv7DimMax];
  float y[kWkv7DimMax];
  float bonus;  // sum of r k r_k
};

Vec16 wkv7_sigmoid(Vec16 x) {
  return div(broadcast(1.0f), add(broadcast(1.0f), exp(sub(zero(), x))));
}

// Decay, keys and value of row t.
void prepare_row(const Wkv7Head& h, int64_t t, Wkv7Row& row) {
  Vec16 squares = zero(), bonus = zero();
  for (int64_t i = 0; i < h.dim; i += 16) {
    const int64_t left = h.dim - i;
    const auto at = [&](const float* from) { return load_up_to(from + i, left, 0.0f); };
    const Vec16 w = wkv7_sigmoid(add(at(h.w0), at(h.w + t * h.w_stride)));
    store_up_to(row.decay + i, exp(mul(broadcast(-0.60653066f), w)), left);  // exp(-1/2)
    const Vec16 a = wkv7_sigmoid(add(at(h.a0), at(h.a + t * h.a_stride)));
    const Vec16 raw = at(h.k + t * h.k_stride);
    const Vec16 kk = mul(raw, at(h.k_k));
    squares = fma(kk, kk, squares);
    const Vec16 one = broadcast(1.0f);
    const Vec16 key = mul(raw, fma(sub(a, one), at(h.k_a), one));
    store_up_to(row.removal + i, kk, left);
    store_up_to(row.back + i, a, left);
    store_up_to(row.key + i, key, left);
    bonus = fma(mul(at(h.r + t * h.r_stride), key), at(h.r_k), bonus);
    Vec16 value = at(h.v + t * h.v_stride);
    if (h.v_first != nullptr) {
      const Vec16 gate = wkv7_sigmoid(add(at(h.v0), at(h.v_gate + t * h.v_gate_stride)));
      value = fma(sub(at(h.v_first + t * h.v_first_stride), value), gate, value);
    }
    store_up_to(row.value + i, value, left);
  }
  row.bonus = sum_of(bonus);
  const __m128d length = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(double{sum_of(squares)}));
  const double divisor = _mm_cvtsd_f64(length) > 1e-12 ? _mm_cvtsd_f64(length) : 1e-12;
  const Vec16 scale = broadcast(static_cast<float>(1.0 / divisor));
  for (int64_t i = 0; i < h.dim; i += 16) {
    const int64_t left = h.dim - i;
    const Vec16 kk = mul(load_up_to(row.removal + i, left, 0.0f), scale);
    store_up_to(row.removal + i, kk, left);
    store_up_to(row.back + i, mul(kk, load_up_to(row.back + i, left, 0.0f)), left);
  }
}

// One row over columns [column, column + width) of the state; kWhole: all lanes are there.
template <int kVecs, bool kWhole>
void advance_columns(const Wkv7Head& h, const float* r, int64_t column, int64_t columns,
                     Wkv7Row& row) {
  const int64_t width = kWhole ? kVecs * 16 : columns;
  const auto lanes = [&](int n) { return kWhole ? int64_t{16} : width - 16 * n; };
  float* const state = h.state + column * h.dim;
  Vec16 removed[kVecs], y[kVecs], value[kVecs];
  for (int n = 0; n < kVecs; ++n) {
    removed[n] = y[n] = zero();
    value[n] = load_up_to(row.value + column + 16 * n, lanes(n), 0.0f);
  }
  for (int64_t j = 0; j < h.dim; ++j) {
    const Vec16 kk = broadcast(row.removal[j]);
    for (int n = 0; n < kVecs; ++n) {
      removed[n] = fnma(kk, load_up_to(state + j * width + 16 * n, lanes(n), 0.0f), removed[n]);
    }
  }
  for (int64_t j = 0; j < h.dim; ++j) {
    const Vec16 decay = broadcast(row.decay[j]), back = broadcast(row.back[j]);
    const Vec16 key = broadcast(row.key[j]), query = broadcast(r[j]);
    for (int n = 0; n < kVecs; ++n) {
      float* const at = state + j * width + 16 * n;
      const Vec16 kept = mul(decay, load_up_to(at, lanes(n), 0.0f));
      const Vec16 s = fma(key, value[n], fma(back, removed[n], kept));
      store_up_to(at, s, lanes(n));
      y[n] = fma(query, s, y[n]);
    }
  }
  for (int n = 0; n < kVecs; ++n) store_up_to(row.y + column + 16 * n, y[n], lanes(n));
}

void advance_row(const Wkv7Head& h, int64_t t, Wkv7Row& row) {
  const float* const r = h.r + t * h.r_stride;
  for (int64_t column = 0; column < h.dim; column += kWkv7Block) {
    const int64_t left = h.dim - column;
    if (left >= 32) {
      advance_columns<2, true>(h, r, column, 32, row);
    } else if (left == 16) {
      advance_columns<1, true>(h, r, column, 16, row);
    } else if (left > 16) {
      advance_columns<2, false>(h, r, column, left, row);
    } else {
      advance_columns<1, false>(h, r, column, left, row);
    }
  }
}

// out := (norm(y) + bonus v) g
void end_row(const Wkv7Head& h, int64_t t, const Wkv7Row& row) {
  Vec16 sum = zero(), squares = zero();
  for (int64_t i = 0; i < h.dim; i += 16) {
    sum = add(sum, load_up_to(row.y + i, h.dim - i, 0.0f));
  }
  const auto mean = static_cast<float>(double{sum_of(sum)} / static_cast<double>(h.dim));
  for (int64_t i = 0; i < h.dim; i += 16) {
    const Vec16 d = sub(load_up_to(row.y + i, h.dim - i, mean), broadcast(mean));
    squares = fma(d, d, squares);
  }
  const double variance = double{sum_of(squares)} / static_cast<double>(h.dim);
  const __m128d root = _mm_sqrt_sd(_mm_setzero_pd(), _mm_set_sd(variance + double{h.norm_eps}));
  const Vec16 scale = broadcast(static_cast<float>(1.0 / _mm_cvtsd_f64(root)));
  for (int64_t i = 0; i < h.dim; i += 16) {
    const int64_t left = h.dim - i;
    const auto at = [&](const float* from) { return load_up_to(from + i, left, 0.0f); };
    const Vec16 normed = mul(sub(at(row.y), broadcast(mean)), scale);
    const Vec16 y = fma(normed, at(h.norm), at(h.norm_bias));
    const Vec16 all = fma(broadcast(row.bonus), at(row.value), y);
    store_up_to(h.out + t * h.out_stride + i, mul(all, at(h.g + t * h.g_stride)), left);
  }
}

void copy_wkv7_state(const float* from, float* to, int64_t count) {
  for (int64_t i = 0; i < count; i += 16) {
    store_up_to(to + i, load_up_to(from + i, count - i, 0.0f), count - i);
  }
}

void wkv7_head(const Wkv7Head& h) {
  const int64_t numbers = h.dim * h.dim;
  if (h.begins) {
    for (int64_t i = 0; i < numbers; i += 16) store_up_to(h.state + i, zero(), numbers - i);
  }
  Wkv7Row row;
  int64_t saved = 0;
  for (int64_t t = 0; t < h.rows; ++t) {
    prepare_row(h, t, row);
    advance_row(h, t, row);
    end_row(h, t, row);
    while (saved < h.save_count && h.saves[saved].row == t) {
      copy_wkv7_state(h.state, h.saves[saved++].state, numbers);
    }
  }
}

}  // namespace
}  // namespace headrace
