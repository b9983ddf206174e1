// Row ends, exp, tanh and erf on sixteen floats. Included after vec16_avx512.h or vec16_avx2.h.
#pragma once

namespace headrace {
namespace {

// As load and store, but only the first `left` lanes at the end of a row.
inline Vec16 load_up_to(const float* from, int64_t left, float fill) {
  return left >= 16 ? load(from) : load_first(from, left, fill);
}
inline void store_up_to(float* to, Vec16 a, int64_t left) {
  if (left >= 16) {
    store(to, a);
  } else {
    store_first(to, a, left);
  }
}

// exp(x) within 1.02 ulp (measured); exp(0) is exactly 1. Below -87.33 (results under the smallest
// normal float) 0, NaN for NaN; x above 88.72 is not expected. exp(x) = 2^n exp(r) with n = round(x
// / ln 2), |r| <= ln(2)/2: the Taylor terms after r^7 are below 2^-27.
inline Vec16 exp_of_negative(Vec16 x) {
  const Vec16 n = round_to_integer(mul(x, broadcast(1.44269504f)));
  Vec16 r = fnma(n, broadcast(0.693359375f), x);  // ln 2 in two parts: n times the first is exact
  r = fnma(n, broadcast(-2.12194440e-4f), r);
  Vec16 p = broadcast(1.0f / 5040);
  p = fma(p, r, broadcast(1.0f / 720));
  p = fma(p, r, broadcast(1.0f / 120));
  p = fma(p, r, broadcast(1.0f / 24));
  p = fma(p, r, broadcast(1.0f / 6));
  p = fma(p, r, broadcast(0.5f));
  p = add(fma(mul(r, r), p, r), broadcast(1.0f));
  return where_less(x, -87.33f, zero(), scale_by_power(p, n));
}

// The same for all x: above 88.72 infinity.
inline Vec16 exp(Vec16 x) {
  return where_greater(x, 88.72f, broadcast(__builtin_inff()), exp_of_negative(x));
}

// 1 - 2 / (exp(2|x|) + 1) with the sign of x: within 1.2e-7 absolute.
inline Vec16 tanh(Vec16 x) {
  const Vec16 magnitude = absolute(x);
  const Vec16 e = exp(add(magnitude, magnitude));
  const Vec16 t = sub(broadcast(1.0f), div(broadcast(2.0f), add(e, broadcast(1.0f))));
  return copy_sign(t, x);
}

// log(1 + e^x) = max(x, 0) + log(1 + u) with u = e^-|x|, and log(1 + u) = 2 artanh(u / (2 + u)):
// of that s at most 1/3 the terms behind s^15 / 15 are below 2^-27 of the sum.
inline Vec16 softplus(Vec16 x) {
  const Vec16 u = exp_of_negative(sub(zero(), absolute(x)));
  const Vec16 s = div(u, add(broadcast(2.0f), u));
  const Vec16 square = mul(s, s);
  constexpr float kTerms[] = {1.0f / 13, 1.0f / 11, 1.0f / 9, 1.0f / 7, 1.0f / 5, 1.0f / 3, 1.0f};
  Vec16 p = broadcast(1.0f / 15);
  for (const float term : kTerms) p = fma(p, square, broadcast(term));
  return add(max(x, zero()), mul(add(s, s), p));
}

// Abramowitz and Stegun 7.1.26: within 3e-7 absolute.
inline Vec16 erf(Vec16 x) {
  const Vec16 magnitude = absolute(x);
  const Vec16 t = div(broadcast(1.0f), fma(magnitude, broadcast(0.3275911f), broadcast(1.0f)));
  Vec16 p = broadcast(1.061405429f);
  p = fma(p, t, broadcast(-1.453152027f));
  p = fma(p, t, broadcast(1.421413741f));
  p = fma(p, t, broadcast(-0.284496736f));
  p = fma(p, t, broadcast(0.254829592f));
  p = mul(p, t);
  const Vec16 e = exp(sub(zero(), mul(magnitude, magnitude)));
  return copy_sign(fnma(p, e, broadcast(1.0f)), x);
}

}  // namespace
}  // namespace headrace
