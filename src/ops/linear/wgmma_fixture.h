// For tests that multiply by a kernel's own index arithmetic on a CPU. What the hardware does is
// written down here a second time, from the PTX ISA: the copy engine's swizzle, the operands that a
// descriptor names, and which sums a thread gets.
#pragma once

#include <gtest/gtest.h>

#include <cstdint>
#include <vector>

#include "base/rng.h"

namespace headrace {

// Rows of integers, in order to compare sums exactly; elements past the end are 0.
struct IntegerMatrix {
  int64_t rows, columns;
  std::vector<float> values;

  static IntegerMatrix random(Rng& rng, int64_t rows, int64_t columns) {
    IntegerMatrix matrix{rows, columns, {}};
    for (int64_t i = 0; i < rows * columns; ++i) {
      matrix.values.push_back(static_cast<float>(rng.below(9)) - 4.0f);
    }
    return matrix;
  }
  bool has(int64_t row, int64_t column) const { return row < rows && column < columns; }
  float at(int64_t row, int64_t column) const {
    return has(row, column) ? values[static_cast<size_t>(row * columns + column)] : 0.0f;
  }
};

// Shared memory, an element for every two bytes.
using SharedImage = std::vector<float>;

// The 128-byte swizzle: bits 7 to 9 of an address are XORed into bits 4 to 6.
inline uint32_t swizzle(uint32_t address) { return address ^ ((address >> 7 & 7) << 4); }

// A box of 64 columns by the copy engine, to `to`.
inline void copy_box(SharedImage& image, uint32_t to, const IntegerMatrix& from, int64_t column,
                     int64_t row, int rows) {
  for (int r = 0; r < rows; ++r) {
    for (int c = 0; c < 64; ++c) {
      image[swizzle(to + static_cast<uint32_t>(128 * r + 2 * c)) / 2] =
          from.at(row + r, column + c);
    }
  }
}

// [rows, 16] of the operand that a descriptor names: k along the bytes of its rows.
inline std::vector<float> operand(const SharedImage& image, uint64_t descriptor, int rows) {
  EXPECT_EQ(descriptor >> 62, 1u) << "128-byte swizzle";
  const auto start = static_cast<uint32_t>((descriptor & 0x3fff) << 4);
  const auto group = static_cast<uint32_t>((descriptor >> 32 & 0x3fff) << 4);
  std::vector<float> values;
  for (int r = 0; r < rows; ++r) {
    for (int k = 0; k < 16; ++k) {
      const uint32_t at =
          start + static_cast<uint32_t>(r / 8) * group + static_cast<uint32_t>(r % 8 * 128 + 2 * k);
      values.push_back(image[swizzle(at) / 2]);
    }
  }
  return values;
}

// The sums of 64 x kTile as wgmma leaves them: [thread][sum].
template <int kTile>
std::vector<std::vector<float>> dealt(const std::vector<float>& d) {
  std::vector<std::vector<float>> sums(128, std::vector<float>(kTile / 2));
  for (int thread = 0; thread < 128; ++thread) {
    for (int i = 0; i < kTile / 2; ++i) {
      const int row = 16 * (thread / 32) + thread % 32 / 4 + 8 * (i / 2 % 2);
      const int column = 8 * (i / 4) + 2 * (thread % 4) + i % 2;
      sums[static_cast<size_t>(thread)][static_cast<size_t>(i)] =
          d[static_cast<size_t>(row * kTile + column)];
    }
  }
  return sums;
}

}  // namespace headrace
