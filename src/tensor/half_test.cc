#include "tensor/half.h"

#include <gtest/gtest.h>

#include <cmath>
#include <limits>

#include "tensor/float8.h"

namespace headrace::half_test {
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

TEST(Float8, EveryPatternRoundTrips) {
  for (int bits = 0; bits < 256; ++bits) {
    const float value = e4m3_to_float(static_cast<uint8_t>(bits));
    if ((bits & 0x7f) == 0x7f) {
      EXPECT_TRUE(std::isnan(value));
    } else {
      EXPECT_EQ(float_to_e4m3(value), bits);
    }
  }
}

// Between two numbers the nearer one is taken, in the middle the even one.
TEST(Float8, RoundsToNearestEvenAndSaturates) {
  for (int bits = 0; bits < 0x7e; ++bits) {
    const float low = e4m3_to_float(static_cast<uint8_t>(bits));
    const float high = e4m3_to_float(static_cast<uint8_t>(bits + 1));
    const float middle = (low + high) / 2;
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, low)), bits);
    EXPECT_EQ(float_to_e4m3(std::nextafter(middle, high)), bits + 1);
    EXPECT_EQ(float_to_e4m3(middle), bits + bits % 2);
    EXPECT_EQ(float_to_e4m3(-middle), 0x80 + bits + bits % 2);
  }
  constexpr float kInfinity = std::numeric_limits<float>::infinity();
  for (const float beyond : {448.1f, 465.0f, 1e9f, kInfinity}) {
    EXPECT_EQ(float_to_e4m3(beyond), 0x7e);
    EXPECT_EQ(float_to_e4m3(-beyond), 0xfe);
  }
  EXPECT_EQ(float_to_e4m3(std::nanf("")) & 0x7f, 0x7f);
}

}  // namespace
}  // namespace headrace::half_test
