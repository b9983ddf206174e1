#include "ops/amx_emulation.h"

#include <gtest/gtest.h>

#include <cmath>
#include <cstring>
#include <vector>

#include "base/rng.h"
#include "tensor/cpu_features.h"
#include "tensor/half.h"

namespace headrace::amx_emulation_test {
namespace {

// As ldtilecfg reads it.
struct Config {
  uint8_t bytes[64] = {1};
  Config& tile(int index, int rows, int row_bytes) {
    bytes[16 + 2 * index] = static_cast<uint8_t>(row_bytes);
    bytes[48 + index] = static_cast<uint8_t>(rows);
    return *this;
  }
};

class AmxEmulation : public testing::Test {
 protected:
  void SetUp() override {
    if (!CpuFeatures::detect().avx2) GTEST_SKIP() << "the emulation is compiled for AVX2";
  }
  void TearDown() override {
    if (!IsSkipped()) emulated::release();
  }

  template <class Element>
  static std::vector<Element> stored(int tile, int rows, int columns) {
    std::vector<Element> out(static_cast<size_t>(rows * columns));
    emulated::store(tile, out.data(), columns * int64_t{sizeof(Element)});
    return out;
  }
};

TEST_F(AmxEmulation, MultipliesSignedAndUnsignedBytes) {
  emulated::load_config(Config{}.tile(0, 3, 8).tile(4, 3, 12).tile(6, 3, 8).bytes);
  Rng rng(1);
  int8_t x[3][12], w[3][2][4];
  for (auto& row : x)
    for (auto& v : row) v = static_cast<int8_t>(rng.next());
  for (auto& row : w)
    for (auto& four : row)
      for (auto& v : four) v = static_cast<int8_t>(rng.next());
  x[0][0] = -128, w[0][0][0] = -128;
  emulated::load(4, x, 12);
  emulated::load(6, w, 8);
  for (const bool with_sign : {true, false}) {
    emulated::zero(0);
    for (int times = 1; times <= 2; ++times) {
      with_sign ? emulated::dot_signed(0, 4, 6) : emulated::dot_unsigned_signed(0, 4, 6);
      const auto sums = stored<int32_t>(0, 3, 2);
      for (int m = 0; m < 3; ++m) {
        for (int n = 0; n < 2; ++n) {
          int32_t want = 0;
          for (int k = 0; k < 12; ++k) {
            const int32_t left =
                with_sign ? int32_t{x[m][k]} : int32_t{static_cast<uint8_t>(x[m][k])};
            want += left * w[k / 4][n][k % 4];
          }
          ASSERT_EQ(sums[static_cast<size_t>(m * 2 + n)], times * want);
        }
      }
    }
  }
}

// One element: x and w are pairs of BF16.
float bf16_dot(float start, const std::vector<std::pair<float, float>>& x,
               const std::vector<std::pair<float, float>>& w) {
  const auto steps = static_cast<int>(x.size());
  emulated::load_config(Config{}.tile(0, 1, 4).tile(1, 1, steps * 4).tile(2, steps, 4).bytes);
  std::vector<uint16_t> left, right;
  for (size_t i = 0; i < x.size(); ++i) {
    for (const float v : {x[i].first, x[i].second}) left.push_back(float_to_bfloat16(v));
    for (const float v : {w[i].first, w[i].second}) right.push_back(float_to_bfloat16(v));
  }
  emulated::load(0, &start, 4);
  emulated::load(1, left.data(), steps * 4);
  emulated::load(2, right.data(), 4);
  emulated::dot_bf16(0, 1, 2);
  float sum;
  emulated::store(0, &sum, 4);
  return sum;
}

TEST_F(AmxEmulation, SumsBf16InTwoChainsAndThenAddsThem) {
  // Each chain swallows what the other, or one chain of all, would keep.
  EXPECT_EQ(bf16_dot(0, {{1, 1}, {1, 1}}, {{0x1p24f, 1}, {1, 1}}), 0x1p24f + 2);
  EXPECT_EQ(bf16_dot(0x1p24f, {{1, 1}, {1, 1}}, {{0.5f, 0.5f}, {0.5f, 0.5f}}), 0x1p24f + 2);
  EXPECT_EQ(bf16_dot(0x1p24f, {{1, 0}}, {{1, 0}}), 0x1p24f);          // a tie, to even
  EXPECT_EQ(bf16_dot(0x1p24f + 2, {{1, 0}}, {{1, 0}}), 0x1p24f + 4);  // and up
}

TEST_F(AmxEmulation, FlushesSubnormalsWhateverTheThreadDoes) {
  const float tiny = 0x1p-130f;                                 // subnormal in BF16 and f32
  EXPECT_EQ(bf16_dot(0, {{tiny, 0}}, {{0x1p20f, 0}}), 0);       // in
  EXPECT_EQ(bf16_dot(0, {{0x1p-70f, 0}}, {{0x1p-60f, 0}}), 0);  // out
  EXPECT_EQ(bf16_dot(tiny, {{0, 0}}, {{0, 0}}), 0);             // the accumulator
  EXPECT_EQ(bf16_dot(0, {{0x1p-66f, 0}}, {{0x1p-60f, 0}}), 0x1p-126f);
  EXPECT_NE(tiny + std::abs(tiny), 0) << "the thread's own rounding is as it was";
}

TEST_F(AmxEmulation, ZeroesWhatTheConfigurationLeavesOutOfALoad) {
  emulated::load_config(Config{}.tile(3, 2, 8).bytes);
  const uint8_t from[2][64] = {{1, 2, 3, 4, 5, 6, 7, 8, 9}, {11, 12, 13, 14, 15, 16, 17, 18, 19}};
  emulated::load(3, from, 64);
  uint8_t to[2][64] = {};
  emulated::store(3, to, 64);
  EXPECT_EQ(std::memcmp(to[0], from[0], 8), 0);
  EXPECT_EQ(std::memcmp(to[1], from[1], 8), 0);
  EXPECT_EQ(to[0][8], 0);
}

TEST_F(AmxEmulation, WhatTheManualForbidsIsABug) {
  EXPECT_DEATH(emulated::zero(0), "no tile configuration");
  Config reserved;
  reserved.bytes[5] = 1;
  EXPECT_DEATH(emulated::load_config(reserved.bytes), "reserved");
  EXPECT_DEATH(emulated::load_config(Config{}.tile(0, 17, 64).bytes), "too large");
  EXPECT_DEATH(emulated::load_config(Config{}.tile(0, 16, 65).bytes), "too large");
  EXPECT_DEATH(emulated::load_config(Config{}.tile(0, 0, 4).bytes), "without");
  emulated::load_config(Config{}.tile(0, 2, 8).tile(1, 2, 8).tile(2, 2, 8).tile(3, 3, 8).bytes);
  emulated::dot_signed(0, 1, 2);
  EXPECT_DEATH(emulated::dot_signed(0, 0, 2), "different");
  EXPECT_DEATH(emulated::dot_signed(0, 1, 3), "a row of w");
  EXPECT_DEATH(emulated::dot_signed(0, 3, 2), "rows of sums");
  EXPECT_DEATH(emulated::zero(5), "leaves this tile out");
  EXPECT_DEATH(emulated::zero(8), "eight");
  emulated::release();
  EXPECT_DEATH(emulated::zero(0), "no tile configuration");
}

}  // namespace
}  // namespace headrace::amx_emulation_test
