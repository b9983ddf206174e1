#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>

namespace headrace {
namespace {

TEST(Half, EveryPatternRoundTrips) {
  for (uint32_t h = 0; h < 0x10000; ++h) {
    const float f = half_to_float(static_cast<uint16_t>(h));
    if (std::isnan(f)) continue;
    EXPECT_EQ(float_to_half(f), h);
    const float b = bfloat16_to_float(static_cast<uint16_t>(h));
    if (!std::isnan(b)) {
      EXPECT_EQ(float_to_bfloat16(b), h);
    }
  }
}

TEST(Half, RoundsToNearestEven) {
  EXPECT_EQ(float_to_half(1.0f + 0x1p-11f), 0x3c00);      // tie, even below
  EXPECT_EQ(float_to_half(1.0f + 3 * 0x1p-11f), 0x3c02);  // tie, even above
  EXPECT_EQ(float_to_half(65519.0f), 0x7bff);
  EXPECT_EQ(float_to_half(65520.0f), 0x7c00);
  EXPECT_EQ(float_to_half(0x1p-25f), 0x0000);  // tie to zero
  EXPECT_EQ(float_to_half(0x1.8p-25f), 0x0001);
  EXPECT_EQ(half_to_float(0x3555), 0.333251953125f);
  EXPECT_EQ(float_to_half(std::nanf("")) & 0x7fff, 0x7e00);
}

}  // namespace
}  // namespace headrace
