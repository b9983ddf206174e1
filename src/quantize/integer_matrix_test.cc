#include "quantize/integer_matrix.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "quantize/matrix_fixture.h"
#include "quantize/packed_integers.h"
#include "quantize/quantised_matrix.h"
#include "tensor/half.h"

namespace headrace::integer_matrix_test {
namespace {

TEST(IntegerMatrix, SymmetricScalesReachTheLargestMagnitude) {
  const std::vector<float> values = {0.5f, -3.0f, 1.0f};
  const GroupScale scale = group_scale(values, {.bits = 4, .group = 3, .scale_type = DType::kF32});
  EXPECT_FLOAT_EQ(scale.scale, 2 * 3.0f / 15);
  EXPECT_EQ(scale.zero, 0);
}

TEST(IntegerMatrix, ZeroPointsReachBothEnds) {
  const IntegerGrid grid{.bits = 4, .group = 4, .symmetric = false, .scale_type = DType::kF32};
  const std::vector<float> values = {-1.0f, 2.0f, 0.0f, 0.25f};
  const GroupScale scale = group_scale(values, grid);
  EXPECT_FLOAT_EQ(scale.scale, 0.2f);
  EXPECT_EQ(scale.zero, -3);
  EXPECT_NEAR(value_of(nearest_step(-1.0f, scale, grid), scale), -1.0f, 1e-6);
  EXPECT_NEAR(value_of(nearest_step(2.0f, scale, grid), scale), 2.0f, 1e-6);
  EXPECT_EQ(value_of(nearest_step(0.0f, scale, grid), scale), 0.0f);
  // Of values of one sign 0 is the other end.
  const std::vector<float> positive = {3.0f, 6.0f};
  EXPECT_EQ(group_scale(positive, grid).zero, grid.least());
}

TEST(IntegerMatrix, ScalesAreNumbersOfTheirType) {
  const std::vector<float> values = {1.0f};
  const float bf16 = group_scale(values, {.group = 1, .scale_type = DType::kBF16}).scale;
  EXPECT_EQ(bf16, bfloat16_to_float(float_to_bfloat16(2.0f / 15)));
  const std::vector<float> zeros(8);
  EXPECT_EQ(group_scale(zeros, {.group = 8}).scale, 1.0f);
  const std::vector<float> tiny = {1e-30f};
  EXPECT_EQ(group_scale(tiny, {.group = 1}).scale, 1.0f);  // F16 has no such scale
}

TEST(IntegerMatrix, FittedScalesGiveUpWhatCountsLittle) {
  const IntegerGrid grid{.bits = 4, .group = 32, .scale_type = DType::kF32};
  const Matrix row = random_matrix(1, 32, 3);
  std::vector<float> values(row.values().begin(), row.values().end()), counts(32, 1.0f);
  values[7] = 6.0f;
  const float whole = group_scale(values, grid).scale;
  EXPECT_LE(fitted_group_scale(values, counts, grid).scale, whole);
  counts[7] = 1e-6f;
  EXPECT_LT(fitted_group_scale(values, counts, grid).scale, 0.8f * whole);
  counts[7] = 1e6f;
  EXPECT_NEAR(fitted_group_scale(values, counts, grid).scale, whole, 0.07f * whole);
}

TEST(IntegerMatrix, NearestIsOffByHalfAStepAtMost) {
  ThreadPool pool(2);
  const Matrix weights = random_matrix(11, 96, 1);
  for (const int32_t bits : {4, 8}) {
    for (const bool symmetric : {true, false}) {
      const IntegerGrid grid{bits, 32, symmetric, DType::kF32};
      const IntegerMatrix q = quantise_nearest(pool, weights, grid);
      const Matrix values = dequantise(pool, q);
      for (int64_t r = 0; r < 11; ++r) {
        for (int64_t c = 0; c < 96; ++c) {
          // At the ends of a range whose zero point was rounded another half.
          const float step = q.scale(r, c / 32).scale;
          EXPECT_LE(std::fabs(values.row(r)[c] - weights.row(r)[c]), 1.001f * step);
        }
      }
    }
  }
}

TEST(PackedIntegers, ComeBackInTheirOrder) {
  const std::vector<int8_t> values = {-8, 7, 0, 1, 2, 3, -1, -2, 5};
  EXPECT_EQ(packed_words(9, 4), 2);
  EXPECT_EQ(packed_word(values.data(), 9, 1, 4, 0), 0x67ba98f0u);
  EXPECT_EQ(packed_word(values.data(), 9, 1, 4, 1), 0xdu);
  for (size_t i = 0; i < values.size(); ++i) {
    const auto index = static_cast<int64_t>(i);
    const uint32_t word = packed_word(values.data(), 9, 1, 8, index / 4);
    EXPECT_EQ(unpacked_value(word, index % 4, 8), values[i]);
  }
}

TEST(QuantisedMatrix, GroupsOf32AreQ4_0) {
  ThreadPool pool(2);
  const Matrix weights = random_matrix(3, 64, 2);
  const IntegerMatrix q = quantise_nearest(pool, weights, {.bits = 4, .group = 32});
  const Matrix integers = dequantise(pool, q), blocks = dequantise(pool, as_q4_0(q));
  EXPECT_TRUE(std::ranges::equal(integers.values(), blocks.values()));
}

}  // namespace
}  // namespace headrace::integer_matrix_test
