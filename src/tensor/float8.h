// FP8 as weights and caches have it: e4m3, a sign, 4 bits of exponent, 3 of mantissa, no
// infinities; 0x7f is NaN. Portable; kernels use their own conversions and are tested against
// these.
#pragma once

#include <algorithm>
#include <bit>
#include <cmath>
#include <cstdint>
#include <limits>

namespace headrace {

inline constexpr float kFloat8Max = 448.0f;

// What a row's numbers are divided by, given the largest of their magnitudes: it becomes
// kFloat8Max. A row of nothing but tiny numbers is one of zeros, as the inverse of its scale may be
// infinite.
inline constexpr float kFloat8ScaleMin = 0x1p-100f;
inline float float8_row_scale(float largest) {
  const float scale = largest / kFloat8Max;
  return scale < kFloat8ScaleMin ? 1.0f : scale;
}

inline float e4m3_to_float(uint8_t bits) {
  const int exponent = bits >> 3 & 15, mantissa = bits & 7;
  const float sign = bits & 0x80 ? -1.0f : 1.0f;
  if (exponent == 15 && mantissa == 7) return std::numeric_limits<float>::quiet_NaN();
  return sign * (exponent == 0 ? std::ldexp(static_cast<float>(mantissa), -9)
                               : std::ldexp(static_cast<float>(8 + mantissa), exponent - 10));
}

// Rounded to nearest even; what is larger becomes kFloat8Max.
inline uint8_t float_to_e4m3(float value) {
  const uint32_t bits = std::bit_cast<uint32_t>(value), magnitude = bits & 0x7fffffff;
  const auto sign = static_cast<uint8_t>(bits >> 24 & 0x80);
  if (magnitude > 0x7f800000) return sign | 0x7f;
  constexpr uint32_t kLeastNormal = (127 - 6) << 23;
  if (magnitude < kLeastNormal) {  // the sum's last bit is 2^-9
    const float shifted = std::bit_cast<float>(magnitude) + 0x1p14f;
    return sign | static_cast<uint8_t>(std::bit_cast<uint32_t>(shifted) & 0xf);
  }
  const uint32_t rounded = magnitude + 0x7ffff + (magnitude >> 20 & 1);
  return sign | static_cast<uint8_t>(std::min(rounded >> 20, uint32_t{135 << 3 | 6}) - (120 << 3));
}

}  // namespace headrace
