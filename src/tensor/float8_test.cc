#include "tensor/float8.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <vector>

#include "base/rng.h"

namespace headrace::float8_test {
namespace {

bool is_nan(int bits) { return (bits & 0x7f) == 0x7f; }

TEST(Float8, EveryNumberComesBack) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if (is_nan(bits)) {
      EXPECT_TRUE(std::isnan(value));
      continue;
    }
    EXPECT_EQ(float_to_e4m3(value), bits) << value;
  }
}

// The nearest of all numbers; between two, the one whose last bit is 0.
uint8_t nearest(float value) {
  int best = 0;
  double least = std::numeric_limits<double>::infinity();
  for (int bits = 0; bits < 0x7f; ++bits) {
    const double off =
        std::abs(std::abs(static_cast<double>(value)) - e4m3_to_float(static_cast<uint8_t>(bits)));
    if (off > least || (off == least && bits % 2 == 1)) continue;
    least = off;
    best = bits;
  }
  return static_cast<uint8_t>(best | (std::signbit(value) ? 0x80 : 0));
}

TEST(Float8, FloatsGoToTheNearest) {
  Rng rng(1);
  std::vector<float> values = {0.0f, -0.0f, 0x1p-10f, 0x1.8p-9f, 0x1p-6f, 447.9f, 448.0f};
  for (int bits = 0; bits + 1 < 0x7f; ++bits) {  // half-way between neighbours
    values.push_back((e4m3_to_float(static_cast<uint8_t>(bits)) +
                      e4m3_to_float(static_cast<uint8_t>(bits + 1))) /
                     2);
  }
  for (int i = 0; i < 20000; ++i) {
    const float scale = std::ldexp(1.0f, static_cast<int>(rng.below(22)) - 12);
    values.push_back(scale * (static_cast<float>(rng.below(200001)) / 100000.0f - 1.0f));
  }
  for (const float value : values) {
    if (std::abs(value) > kFloat8Max) continue;
    EXPECT_EQ(float_to_e4m3(value), nearest(value)) << value;
    EXPECT_EQ(float_to_e4m3(-value), nearest(-value)) << -value;
  }
}

TEST(Float8, ScalesOfRowsHaveInverses) {
  EXPECT_EQ(float8_row_scale(448.0f), 1.0f);
  EXPECT_EQ(float8_row_scale(0.07f), 0.07f / kFloat8Max);
  EXPECT_EQ(float8_row_scale(448 * 0x1p-100f), 0x1p-100f);
  for (const float tiny : {0.0f, 0x1p-149f, 0x1p-126f, 447 * 0x1p-100f}) {
    EXPECT_EQ(float8_row_scale(tiny), 1.0f) << tiny;
  }
  EXPECT_TRUE(std::isnan(float8_row_scale(std::numeric_limits<float>::quiet_NaN())));
}

TEST(Float8, WhatIsTooLargeIsTheLargest) {
  for (const float value : {449.0f, 480.0f, 1e30f, std::numeric_limits<float>::infinity()}) {
    EXPECT_EQ(float_to_e4m3(value), 0x7e);
    EXPECT_EQ(float_to_e4m3(-value), 0xfe);
  }
  EXPECT_EQ(float_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace headrace::float8_test
