#include "ops/rows/scale_queries.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::scale_queries_test {
namespace {

constexpr QueryTemperature kTemperature{.scale = 0.3f, .step = 8, .offset = 1};

// 1 + scale * ln(1 + floor((position + offset) / step)), in double.
double expected_factor(int32_t position) {
  const double steps = std::floor((position + double{kTemperature.offset}) / kTemperature.step);
  return 1 + double{kTemperature.scale} * std::log(1 + steps);
}

TEST(ScaleQueries, RowsGrowWithTheirPositionsAndHeadsHaveWeights) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {1, 3, 40}) {
    for (const bool tempered : {false, true}) {
      for (const bool weighted : {false, true}) {
        constexpr int32_t kHeads = 5, kDim = 12;
        Rng rng(static_cast<uint64_t>(rows));
        const TestMatrix before(rng, rows, int64_t{kHeads} * kDim, 2.0f);
        const std::vector<float> weights = random_floats(rng, kDim);
        std::vector<int32_t> positions;
        for (int64_t t = 0; t < rows; ++t) positions.push_back(static_cast<int32_t>(rng.below(90)));
        TestMatrix x = before;
        scale_queries(context, {.x = x.view(),
                                .temperature = tempered ? kTemperature : QueryTemperature{},
                                .positions = positions,
                                .weights = weighted ? weights.data() : nullptr,
                                .head_dim = kDim});
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t i = 0; i < x.columns(); ++i) {
            double by = tempered ? expected_factor(positions[static_cast<size_t>(t)]) : 1.0;
            if (weighted) by *= weights[static_cast<size_t>(i % kDim)];
            const double want = before.at(t, i) * by;
            ASSERT_NEAR(x.at(t, i), want, 1e-6 * std::abs(want)) << t << " " << i;
          }
        }
        EXPECT_TRUE(x.gaps_untouched());
      }
    }
  }
}

TEST(ScaleQueries, FactorsMayGrowWithoutSteps) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(4);
  const TestMatrix before(rng, 5, 32);
  TestMatrix x = before;
  const std::vector<int32_t> positions = {0, 6, 7, 11, 80};
  scale_queries(context, {.x = x.view(),
                          .temperature = {.scale = 0.3f, .step = 8, .offset = 1, .smooth = true},
                          .positions = positions});
  for (int64_t t = 0; t < 5; ++t) {
    const double share = (positions[static_cast<size_t>(t)] + 1) / 8.0;
    const double by = 1 + double{0.3f} * std::log(std::max(share, 1.0));
    for (int64_t i = 0; i < x.columns(); ++i) {
      const double want = before.at(t, i) * by;
      ASSERT_NEAR(x.at(t, i), want, 1e-6 * std::abs(want)) << t << " " << i;
    }
  }
}

TEST(ScaleQueries, TheFirstPositionsKeepTheirBits) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(2);
  const TestMatrix before(rng, 7, 32);
  TestMatrix x = before;
  const std::vector<int32_t> positions = {0, 1, 2, 3, 4, 5, 6};  // 6 + 1 < 8
  scale_queries(context, {.x = x.view(), .temperature = kTemperature, .positions = positions});
  EXPECT_TRUE(same_bits(x, before));
}

}  // namespace
}  // namespace headrace::scale_queries_test
