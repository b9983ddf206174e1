#include "tensor/quantise_q4_k.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstdint>
#include <cstring>

#include "tensor/half.h"

namespace headrace {
namespace {

constexpr int kParts = 8;
constexpr int kPartColumns = 32;
constexpr float kQuantMax = 15.0f;
constexpr float kScaleMax = 63.0f;  // 6 bits
// Grids that are tried: their steps divide the range of a part into 14 to 16 quants.
constexpr int kGrids = 9;

// A part is scale q - minimum, both >= 0.
struct PartScale {
  float scale = 0;
  float minimum = 0;
};

// To nearest, by truncation: SSE2 has no other rounding in vectors.
float quant(float x, float inverse, float minimum) {
  const float steps = std::clamp((x + minimum) * inverse, 0.0f, kQuantMax);
  return static_cast<float>(static_cast<int32_t>(steps + 0.5f));
}

// Weighted sums over a part, of quants q and values x.
struct Sums {
  float w = 0, q = 0, qq = 0, x = 0, qx = 0, xx = 0;
};

Sums sum_part(const float* x, const float* weight, const PartScale& grid) {
  const float inverse = grid.scale > 0 ? 1.0f / grid.scale : 0.0f;
  Sums sums;
  for (int i = 0; i < kPartColumns; ++i) {
    const float q = quant(x[i], inverse, grid.minimum);
    const float wq = weight[i] * q, wx = weight[i] * x[i];
    sums.w += weight[i];
    sums.q += wq;
    sums.qq += wq * q;
    sums.x += wx;
    sums.qx += wq * x[i];
    sums.xx += wx * x[i];
  }
  return sums;
}

// The scale and minimum that fit the quants of `sums` best (two normal equations), minimum >= 0.
PartScale least_squares(const Sums& s) {
  const float determinant = s.w * s.qq - s.q * s.q;
  if (determinant <= 0) return {};
  PartScale fit{(s.w * s.qx - s.q * s.x) / determinant, (s.q * s.qx - s.qq * s.x) / determinant};
  if (fit.minimum < 0) fit = {s.qq > 0 ? s.qx / s.qq : 0.0f, 0.0f};
  return fit.scale > 0 ? fit : PartScale{};
}

// sum of weight (scale q - minimum - x)^2
float squared_error(const Sums& s, const PartScale& p) {
  return p.scale * p.scale * s.qq + p.minimum * p.minimum * s.w + s.xx -
         2 * p.scale * p.minimum * s.q - 2 * p.scale * s.qx + 2 * p.minimum * s.x;
}

PartScale fit_part(const float* x) {
  const auto [least, most] = std::minmax_element(x, x + kPartColumns);
  const float low = std::min(*least, 0.0f);
  const float range = *most - low;
  if (!(range > 0)) return {0.0f, -low};
  float squares = 0;
  for (int i = 0; i < kPartColumns; ++i) squares += x[i] * x[i];
  const float rms = std::sqrt(squares / kPartColumns);
  float weight[kPartColumns];
  for (int i = 0; i < kPartColumns; ++i) weight[i] = rms + std::fabs(x[i]);
  PartScale best{range / kQuantMax, -low};
  float best_error = squared_error(sum_part(x, weight, best), best);
  for (int g = 0; g < kGrids; ++g) {
    const float steps = kQuantMax - 1.0f + 0.25f * static_cast<float>(g);
    const Sums sums = sum_part(x, weight, {range / steps, -low});
    const PartScale fit = least_squares(sums);
    const float error = squared_error(sums, fit);
    if (fit.scale > 0 && error < best_error) {
      best = fit;
      best_error = error;
    }
  }
  return best;
}

// 8 scales and 8 minima of 6 bits in 12 bytes: the low 6 bits of the first eight bytes are those of
// parts 0 to 3; parts 4 to 7 have their low halves in the last four bytes and their upper two bits
// above the others.
void store_6_bit_scales(const std::array<uint8_t, kParts>& scales,
                        const std::array<uint8_t, kParts>& minima, std::byte* out) {
  uint8_t bytes[12];
  for (size_t i = 0; i < 4; ++i) {
    bytes[i] = static_cast<uint8_t>(scales[i] | (scales[i + 4] >> 4) << 6);
    bytes[4 + i] = static_cast<uint8_t>(minima[i] | (minima[i + 4] >> 4) << 6);
    bytes[8 + i] = static_cast<uint8_t>((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
  }
  std::memcpy(out, bytes, sizeof bytes);
}

// A block's f16 and the 6-bit integers under it that come nearest to `values`.
float round_scales(const std::array<float, kParts>& values, std::array<uint8_t, kParts>& integers,
                   std::byte* half) {
  const float most = *std::max_element(values.begin(), values.end());
  const uint16_t bits = float_to_half(most / kScaleMax);
  std::memcpy(half, &bits, sizeof bits);
  const float unit = half_to_float(bits);
  for (size_t i = 0; i < kParts; ++i) {
    const float steps = unit > 0 ? std::nearbyint(values[i] / unit) : 0.0f;
    integers[i] = static_cast<uint8_t>(std::clamp(steps, 0.0f, kScaleMax));
  }
  return unit;
}

}  // namespace

void quantise_q4_k(const float* x, std::byte* block) {
  std::array<float, kParts> scales, minima;
  for (size_t p = 0; p < kParts; ++p) {
    const PartScale part = fit_part(x + p * kPartColumns);
    scales[p] = part.scale;
    minima[p] = part.minimum;
  }
  std::array<uint8_t, kParts> scale_bits, minimum_bits;
  const float d = round_scales(scales, scale_bits, block);
  const float e = round_scales(minima, minimum_bits, block + 2);
  store_6_bit_scales(scale_bits, minimum_bits, block + 4);
  // 32 bytes hold two parts: one in their low halves, the next in the high ones.
  for (size_t p = 0; p < kParts; ++p) {
    std::byte* const bytes = block + 16 + p / 2 * kPartColumns;
    const float scale = d * static_cast<float>(scale_bits[p]);
    const float minimum = e * static_cast<float>(minimum_bits[p]);
    const float inverse = scale > 0 ? 1.0f / scale : 0.0f;
    for (size_t i = 0; i < kPartColumns; ++i) {
      const auto q = static_cast<uint8_t>(quant(x[p * kPartColumns + i], inverse, minimum));
      bytes[i] = p % 2 == 0 ? static_cast<std::byte>(q) : bytes[i] | static_cast<std::byte>(q << 4);
    }
  }
}

}  // namespace headrace
