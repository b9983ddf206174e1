#include "ops/rows/norm_add.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::norm_add_test {
namespace {

constexpr float kEps = 1e-3f, kScale = 0.3f, kFactor = 0.7f;

TEST(NormAdd, EachGroupOfColumnsIsNormalisedByItself) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 20}) {
    for (const int64_t group : {1, 12, 48}) {
      constexpr int64_t kColumns = 48;
      Rng rng(static_cast<uint64_t>(rows + group));
      const TestMatrix before(rng, rows, kColumns);
      TestMatrix x = before, y(rng, rows, kColumns, 2.0f);
      const TestMatrix y_before = y;
      const std::vector<float> weight = random_floats(rng, group);
      norm_add(context, {.x = x.view(),
                         .y = y.view(),
                         .weight = weight.data(),
                         .group = group,
                         .eps = kEps,
                         .scale = kScale,
                         .factor = kFactor});
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t i = 0; i < kColumns; ++i) {
          double squares = 0;
          for (int64_t j = i / group * group; j < (i / group + 1) * group; ++j) {
            squares += std::pow(double{kScale} * y.at(t, j), 2);
          }
          const double size = std::sqrt(squares / static_cast<double>(group) + double{kEps});
          const double normed =
              double{kScale} * y.at(t, i) / size * weight[static_cast<size_t>(i % group)];
          const double want = kFactor * (before.at(t, i) + normed);
          ASSERT_NEAR(x.at(t, i), want, 1e-6 * (1 + std::abs(want))) << t << " " << i;
        }
      }
      EXPECT_TRUE(x.gaps_untouched());
      EXPECT_TRUE(same_bits(y, y_before));
    }
  }
}

}  // namespace
}  // namespace headrace::norm_add_test
