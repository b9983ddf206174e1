#include "weights/mxfp4.h"

#include <algorithm>
#include <array>
#include <cmath>
#include <cstring>
#include <span>

#include "tensor/half.h"

namespace headrace {
namespace {

// Twice the numbers.
constexpr std::array<int8_t, 16> kTwice = {0, 1, 2, 3, 4, 6, 8, 12, 0, -1, -2, -3, -4, -6, -8, -12};

// Half of a scale is 2^(byte - 128).
constexpr int kHalfBias = 128;
constexpr int kHalfExponentMin = -24, kHalfExponentMax = 15;  // of f16

std::array<int8_t, kMxfp4Columns> integers(const Mxfp4Block& block, Mxfp4Order order) {
  std::array<int8_t, kMxfp4Columns> all;
  const bool halves = order == Mxfp4Order::kHalves;
  for (size_t i = 0; i < static_cast<size_t>(kMxfp4NibbleBytes); ++i) {
    const auto byte = static_cast<uint8_t>(block.nibbles[i]);
    all[halves ? i : 2 * i] = kTwice[byte & 15];
    all[halves ? i + 16 : 2 * i + 1] = kTwice[byte >> 4];
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

bool fits_q8_0(const Mxfp4Block& block) {
  return is_half(block.scale - kHalfBias) || is_zero(block);
}

void mxfp4_to_q8_0(const Mxfp4Block& block, Mxfp4Order order, std::byte* out) {
  const int exponent = block.scale - kHalfBias;
  const uint16_t scale = float_to_half(is_half(exponent) ? std::ldexp(1.0f, exponent) : 0.0f);
  std::memcpy(out, &scale, sizeof(scale));
  const auto quants = integers(block, order);
  std::memcpy(out + sizeof(scale), quants.data(), quants.size());
}

void mxfp4_to_float(const Mxfp4Block& block, Mxfp4Order order, std::byte* out) {
  for (const int8_t quant : integers(block, order)) {
    const float value = std::ldexp(static_cast<float>(quant), block.scale - kHalfBias);
    std::memcpy(out, &value, sizeof(value));
    out += sizeof(value);
  }
}

}  // namespace headrace
