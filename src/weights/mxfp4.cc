#include "weights/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "tensor/block_quants.h"
#include "tensor/half.h"

namespace headrace {
namespace {

// Half of a scale is 2^(byte - 128).
constexpr int kHalfBias = 128;
constexpr int kHalfExponentMin = -24, kHalfExponentMax = 15;  // of f16

std::array<int8_t, kMxfp4Columns> integers(const Mxfp4Block& block, Mxfp4Order order) {
  std::array<int8_t, kMxfp4Columns> all;
  const bool halves = order == Mxfp4Order::kHalves;
  for (size_t i = 0; i < static_cast<size_t>(kMxfp4NibbleBytes); ++i) {
    const auto byte = static_cast<uint8_t>(block.nibbles[i]);
    all[halves ? i : 2 * i] = kE2m1Values[byte & 15];
    all[halves ? i + 16 : 2 * i + 1] = kE2m1Values[byte >> 4];
  }
  return all;
}

bool is_zero(const Mxfp4Block& block) {
  constexpr auto kMagnitudes = std::byte{0x77};
  return std::all_of(block.nibbles, block.nibbles + kMxfp4NibbleBytes,
                     [](std::byte byte) { return (byte & kMagnitudes) == std::byte{0}; });
}

bool is_half(int exponent) { return exponent >= kHalfExponentMin && exponent <= kHalfExponentMax; }

}  // namespace

bool fits_e2m1(const Mxfp4Block& block) {
  return is_half(block.scale - kHalfBias) || is_zero(block);
}

void mxfp4_to_e2m1(const Mxfp4Block& block, Mxfp4Order order, std::byte* out) {
  const int exponent = block.scale - kHalfBias;
  const uint16_t scale = float_to_half(is_half(exponent) ? std::ldexp(1.0f, exponent) : 0.0f);
  std::memcpy(out, &scale, sizeof(scale));
  out += sizeof(scale);
  if (order == Mxfp4Order::kHalves) {
    std::copy_n(block.nibbles, kMxfp4NibbleBytes, out);
    return;
  }
  const auto index = [&](int64_t column) {
    return block.nibbles[column / 2] >> (column % 2 * 4) & std::byte{15};
  };
  for (int64_t i = 0; i < kMxfp4NibbleBytes; ++i) out[i] = index(i) | index(i + 16) << 4;
}

void mxfp4_to_float(const Mxfp4Block& block, Mxfp4Order order, std::byte* out) {
  for (const int8_t quant : integers(block, order)) {
    const float value = std::ldexp(static_cast<float>(quant), block.scale - kHalfBias);
    std::memcpy(out, &value, sizeof(value));
    out += sizeof(value);
  }
}

}  // namespace headrace
