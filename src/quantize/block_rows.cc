#include "quantize/block_rows.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>

#include "base/check.h"
#include "tensor/half.h"
#include "tensor/quantised_row.h"

namespace headrace {
namespace {

// ---- Scales of a part of 16 or 32 columns. `w`: what an error of each column counts.

// x = scale q, least <= q < -least. The grids that are tried reach from a little less to a little
// more than the largest magnitude, to either side; each is then fitted to its own quants.
float fit_symmetric(std::span<const float> x, std::span<const float> w, int least) {
  float extreme = 0;
  for (const float value : x) {
    if (std::fabs(value) > std::fabs(extreme)) extreme = value;
  }
  if (extreme == 0) return 0;
  float best = 0;
  double best_gain = -1;
  constexpr int kTries = 9;
  for (int t = -kTries; t <= kTries; ++t) {
    const float inverse = (static_cast<float>(least) - 0.1f * static_cast<float>(t)) / extreme;
    double qx = 0, qq = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const float q = std::clamp(std::nearbyint(x[i] * inverse), static_cast<float>(least),
                                 static_cast<float>(-least - 1));
      qx += double{w[i]} * double{q} * double{x[i]};
      qq += double{w[i]} * double{q} * double{q};
    }
    // With scale = qx / qq the error is sum w x^2 - qx^2 / qq.
    const double gain = qq > 0 ? qx * qx / qq : 0;
    if (gain <= best_gain || qq == 0) continue;
    best_gain = gain;
    best = static_cast<float>(qx / qq);
  }
  return best;
}

struct Affine {
  float scale = 0, minimum = 0;  // x = scale q - minimum
};

// 0 <= q <= most; `positive`: the minimum is not below 0 (K-quants keep it without a sign).
Affine fit_affine(std::span<const float> x, std::span<const float> w, int most, bool positive) {
  const auto [least_at, most_at] = std::ranges::minmax_element(x);
  const float low = positive ? std::min(*least_at, 0.0f) : *least_at;
  const float range = *most_at - low;
  if (!(range > 0)) return {0, -low};
  const auto steps_max = static_cast<float>(most);
  Affine best{range / steps_max, -low};
  double best_error = -1;
  constexpr int kTries = 20;
  for (int t = -1; t <= kTries; ++t) {
    const float steps = t < 0 ? steps_max : steps_max - 0.5f + 0.1f * static_cast<float>(t) - 0.5f;
    const float inverse = steps / range;
    double s_w = 0, s_q = 0, s_qq = 0, s_x = 0, s_qx = 0, s_xx = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double q = std::clamp(std::nearbyint((x[i] - low) * inverse), 0.0f, steps_max);
      const double weight = w[i], value = x[i];
      s_w += weight;
      s_q += weight * q;
      s_qq += weight * q * q;
      s_x += weight * value;
      s_qx += weight * q * value;
      s_xx += weight * value * value;
    }
    const double determinant = s_w * s_qq - s_q * s_q;
    if (!(determinant > 0)) continue;
    double scale = (s_w * s_qx - s_q * s_x) / determinant;
    double minimum = (s_q * s_qx - s_qq * s_x) / determinant;
    if (positive && minimum < 0) {
      minimum = 0;
      scale = s_qq > 0 ? s_qx / s_qq : 0;
    }
    const double error = scale * scale * s_qq + minimum * minimum * s_w + s_xx -
                         2 * scale * minimum * s_q - 2 * scale * s_qx + 2 * minimum * s_x;
    if (!(scale > 0) || (best_error >= 0 && error >= best_error)) continue;
    best_error = error;
    best = {static_cast<float>(scale), static_cast<float>(minimum)};
  }
  return best;
}

uint8_t quant(float x, float scale, float minimum, int least, int most) {
  const float steps = scale != 0 ? std::nearbyint((x + minimum) / scale) : 0.0f;
  return static_cast<uint8_t>(
      std::clamp(steps, static_cast<float>(least), static_cast<float>(most)) -
      static_cast<float>(least));
}

float store_half(std::byte* at, float value) {
  const uint16_t bits = float_to_half(value);
  std::memcpy(at, &bits, sizeof bits);
  return half_to_float(bits);
}

// ---- Blocks of 32: half d (half m), fifth bits, nibbles of column j low and of j + 16 high.
constexpr size_t kColumns32 = 32;

void store_32(const std::array<uint8_t, kColumns32>& q, bool five, std::byte* at) {
  if (five) {
    uint32_t high = 0;
    for (size_t i = 0; i < kColumns32; ++i) high |= static_cast<uint32_t>(q[i] >> 4) << i;
    std::memcpy(at, &high, sizeof high);
    at += sizeof high;
  }
  for (size_t j = 0; j < kColumns32 / 2; ++j) {
    at[j] = static_cast<std::byte>((q[j] & 15) | (q[j + 16] & 15) << 4);
  }
}

void symmetric_block(const float* x, const float* w, bool five, std::byte* block) {
  const int least = five ? -16 : -8;
  const float d = store_half(block, fit_symmetric({x, kColumns32}, {w, kColumns32}, least));
  std::array<uint8_t, kColumns32> q;
  for (size_t i = 0; i < kColumns32; ++i) {
    // Of a zero scale all quants stand for 0.
    q[i] = d == 0 ? static_cast<uint8_t>(-least) : quant(x[i], d, 0, least, -least - 1);
  }
  store_32(q, five, block + 2);
}

void affine_block(const float* x, const float* w, bool five, std::byte* block) {
  const int most = five ? 31 : 15;
  const Affine fit = fit_affine({x, kColumns32}, {w, kColumns32}, most, /*positive=*/false);
  const float d = store_half(block, fit.scale);
  const float m = store_half(block + 2, -fit.minimum);
  std::array<uint8_t, kColumns32> q;
  for (size_t i = 0; i < kColumns32; ++i) q[i] = quant(x[i], d, -m, 0, most);
  store_32(q, five, block + 4);
}

// ---- Blocks of 256 (tensor/block_quants.cc has the layouts).
constexpr size_t kColumns256 = 256;
constexpr size_t kParts32 = 8, kParts16 = 16;

// A block's f16 and the integers under it, at most `most`.
float store_integers(std::span<const float> values, float most, std::byte* half,
                     std::span<int> integers) {
  const float largest = *std::ranges::max_element(values);
  const float unit = store_half(half, largest / most);
  for (size_t i = 0; i < values.size(); ++i) {
    const float steps = unit > 0 ? std::nearbyint(values[i] / unit) : 0.0f;
    integers[i] = static_cast<int>(std::clamp(steps, 0.0f, most));
  }
  return unit;
}

void store_6_bits(const std::array<int, kParts32>& scales, const std::array<int, kParts32>& minima,
                  std::byte* out) {
  for (size_t i = 0; i < 4; ++i) {
    out[i] = static_cast<std::byte>(scales[i] | (scales[i + 4] >> 4) << 6);
    out[4 + i] = static_cast<std::byte>(minima[i] | (minima[i + 4] >> 4) << 6);
    out[8 + i] = static_cast<std::byte>((scales[i + 4] & 15) | (minima[i + 4] & 15) << 4);
  }
}

// Nibbles of 64 columns lie in 32 bytes: the first 32 columns low, the second 32 high.
void store_nibbles_256(const std::array<uint8_t, kColumns256>& q, std::byte* out) {
  for (size_t c = 0; c < kColumns256; c += 64) {
    for (size_t i = 0; i < 32; ++i) {
      out[c / 2 + i] = static_cast<std::byte>((q[c + i] & 15) | (q[c + 32 + i] & 15) << 4);
    }
  }
}

void minima_block(const float* x, const float* w, bool five, std::byte* block) {
  const int most = five ? 31 : 15;
  std::array<float, kParts32> scales, minima;
  for (size_t p = 0; p < kParts32; ++p) {
    const Affine fit = fit_affine({x + p * 32, 32}, {w + p * 32, 32}, most, /*positive=*/true);
    scales[p] = fit.scale;
    minima[p] = fit.minimum;
  }
  std::array<int, kParts32> scale_integers, minimum_integers;
  const float d = store_integers(scales, 63.0f, block, scale_integers);
  const float e = store_integers(minima, 63.0f, block + 2, minimum_integers);
  store_6_bits(scale_integers, minimum_integers, block + 4);
  std::array<uint8_t, kColumns256> q;
  for (size_t c = 0; c < kColumns256; ++c) {
    const size_t p = c / 32;
    q[c] = quant(x[c], d * static_cast<float>(scale_integers[p]),
                 e * static_cast<float>(minimum_integers[p]), 0, most);
  }
  std::byte* nibbles = block + 16;
  if (five) {
    std::fill(nibbles, nibbles + 32, std::byte{0});
    for (size_t c = 0; c < kColumns256; ++c) {
      nibbles[c % 32] |= static_cast<std::byte>((q[c] >> 4) << (c / 32));
    }
    nibbles += 32;
  }
  store_nibbles_256(q, nibbles);
}

// 128 bytes of nibbles, 64 of pairs of bits, 16 scales of 8 bits, half d.
void six_bit_block(const float* x, const float* w, std::byte* block) {
  std::array<float, kParts16> scales;
  float extreme = 0;
  for (size_t p = 0; p < kParts16; ++p) {
    scales[p] = fit_symmetric({x + p * 16, 16}, {w + p * 16, 16}, -32);
    if (std::fabs(scales[p]) > std::fabs(extreme)) extreme = scales[p];
  }
  const float d = store_half(block + 208, extreme / -128.0f);
  std::array<uint8_t, kColumns256> q;
  for (size_t p = 0; p < kParts16; ++p) {
    const float steps = d != 0 ? std::nearbyint(scales[p] / d) : 0.0f;
    const auto integer = static_cast<int8_t>(std::clamp(steps, -128.0f, 127.0f));
    std::memcpy(block + 192 + p, &integer, 1);
    const float scale = d * static_cast<float>(integer);
    for (size_t c = p * 16; c < (p + 1) * 16; ++c) {
      q[c] = scale == 0 ? uint8_t{32} : quant(x[c], scale, 0, -32, 31);
    }
  }
  // The nibbles of 128 columns lie in 64 bytes: the first 64 columns low, the second 64 high; pairs
  // of 128 columns in 32 bytes, each 32 columns two bits above the last.
  std::fill(block, block + 192, std::byte{0});
  for (size_t c = 0; c < kColumns256; ++c) {
    const size_t half = c / 128, within = c % 128;
    block[half * 64 + within % 64] |= static_cast<std::byte>((q[c] & 15) << (within / 64 * 4));
    block[128 + half * 32 + within % 32] |=
        static_cast<std::byte>((q[c] >> 4) << (within / 32 * 2));
  }
}

void store_block(DType dtype, const float* x, const float* w, std::byte* block) {
  switch (dtype) {
    case DType::kQ4_0:
      return symmetric_block(x, w, /*five=*/false, block);
    case DType::kQ5_0:
      return symmetric_block(x, w, /*five=*/true, block);
    case DType::kQ4_1:
      return affine_block(x, w, /*five=*/false, block);
    case DType::kQ5_1:
      return affine_block(x, w, /*five=*/true, block);
    case DType::kQ4_K:
      return minima_block(x, w, /*five=*/false, block);
    case DType::kQ5_K:
      return minima_block(x, w, /*five=*/true, block);
    case DType::kQ6_K:
      return six_bit_block(x, w, block);
    default:
      CHECK_MSG(false, "no block type that is made by importance");
  }
}

// What an error of each column counts. By importance: that times a root that grows with the weight,
// so that large weights keep their place (as llama.cpp's quantisers have it); without, as
// quantise_q4_k() has it.
void fill_weights(std::span<const float> x, std::span<const float> importance,
                  std::span<float> weights) {
  double squares = 0;
  for (const float value : x) squares += double{value} * double{value};
  const auto mean = static_cast<float>(squares / static_cast<double>(x.size()));
  for (size_t i = 0; i < x.size(); ++i) {
    weights[i] = importance.empty() ? std::sqrt(mean) + std::fabs(x[i])
                                    : importance[i] * std::sqrt(2 * mean + x[i] * x[i]);
    weights[i] += 1e-30f;  // columns that no text ever had
  }
}

}  // namespace

bool is_made_block_type(DType dtype) {
  constexpr DType kMade[] = {DType::kQ8_0, DType::kQ4_0, DType::kQ4_1, DType::kQ5_0,
                             DType::kQ5_1, DType::kQ4_K, DType::kQ5_K, DType::kQ6_K};
  return std::ranges::find(kMade, dtype) != std::end(kMade);
}

std::optional<DType> block_type_for(DType wanted, int64_t columns) {
  DType dtype = wanted;
  if (!row_bytes(dtype, columns)) {
    if (dtype == DType::kQ4_K) dtype = DType::kQ5_0;
    if (dtype == DType::kQ5_K) dtype = DType::kQ5_1;
    if (dtype == DType::kQ6_K) dtype = DType::kQ8_0;
  }
  return row_bytes(dtype, columns) ? std::optional(dtype) : std::nullopt;
}

std::vector<std::byte> quantise_blocks(ThreadPool& pool, const Matrix& weights, DType dtype,
                                       std::span<const float> importance) {
  CHECK(is_made_block_type(dtype));
  const int64_t columns = weights.columns();
  const auto row_size = static_cast<size_t>(*row_bytes(dtype, columns));
  std::vector<std::byte> bytes(row_size * static_cast<size_t>(weights.rows()));
  const DTypeInfo& info = dtype_info(dtype);
  pool.parallel_for(weights.rows(), 8, [&](int64_t first, int64_t last) {
    std::vector<float> counts(static_cast<size_t>(columns));
    for (int64_t r = first; r < last; ++r) {
      const std::span<const float> row(weights.row(r), static_cast<size_t>(columns));
      const auto out = std::span(bytes).subspan(static_cast<size_t>(r) * row_size, row_size);
      if (dtype == DType::kQ8_0) {
        quantise_row(dtype, row, out);
        continue;
      }
      fill_weights(row, importance, counts);
      std::byte* block = out.data();
      for (int64_t c = 0; c < columns; c += info.block_elements, block += info.block_bytes) {
        store_block(dtype, row.data() + c, counts.data() + c, block);
      }
    }
  });
  return bytes;
}

}  // namespace headrace
