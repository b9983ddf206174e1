#include "ops/rows/altup.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::altup_test {
namespace {

constexpr int64_t kColumns = 21;

// Row r of W tanh(modes of row t).
double weight_of(const std::vector<float>& weights, const TestMatrix& modes, int64_t t, int64_t r) {
  double sum = 0;
  for (int64_t c = 0; c < modes.columns(); ++c) {
    sum +=
        weights[static_cast<size_t>(r * modes.columns() + c)] * std::tanh(double{modes.at(t, c)});
  }
  return sum;
}

TEST(AltUp, StreamsArePredictedOfAll) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 20}) {
    for (const int32_t count : {1, 4, 5, kAltUpStreamsMax}) {
      Rng rng(static_cast<uint64_t>(rows + count));
      const TestMatrix before(rng, rows, count * kColumns);
      TestMatrix streams = before, modes(rng, rows, count), x(rows, kColumns);
      const std::vector<float> weights = random_floats(rng, int64_t{count} * count * count, 0.4f);
      const int32_t active = count - 1;
      altup_predict(context, {.streams = streams.view(),
                              .modes = modes.view(),
                              .weights = weights.data(),
                              .active = active,
                              .x = x.view()});
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t j = 0; j < count; ++j) {
          for (int64_t c = 0; c < kColumns; ++c) {
            double want = before.at(t, j * kColumns + c);
            for (int64_t i = 0; i < count; ++i) {
              want += weight_of(weights, modes, t, j * count + i) * before.at(t, i * kColumns + c);
            }
            const float got = streams.at(t, j * kColumns + c);
            ASSERT_NEAR(got, want, 1e-5 * (1 + std::abs(want))) << t << " " << j << " " << c;
            if (j == active) {
              ASSERT_EQ(x.at(t, c), got);
            }
          }
        }
      }
      EXPECT_TRUE(streams.gaps_untouched() && x.gaps_untouched());
    }
  }
}

TEST(AltUp, StreamsAreCorrectedByWhatTheLayerMade) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 20}) {
    for (const int32_t count : {1, 4, 5, kAltUpStreamsMax}) {
      for (const bool scales : {false, true}) {
        Rng rng(static_cast<uint64_t>(rows + count));
        const TestMatrix before(rng, rows, count * kColumns);
        TestMatrix streams = before, modes(rng, rows, count), x(rng, rows, kColumns);
        TestMatrix out(rows, kColumns);
        const std::vector<float> weights = random_floats(rng, int64_t{count} * count, 0.4f);
        const std::vector<float> scale = random_floats(rng, kColumns);
        const int32_t active = count / 2;
        altup_correct(context, {.streams = streams.view(),
                                .modes = modes.view(),
                                .weights = weights.data(),
                                .active = active,
                                .x = x.view(),
                                .scale = scales ? scale.data() : nullptr,
                                .out = out.view()});
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t j = 0; j < count; ++j) {
            for (int64_t c = 0; c < kColumns; ++c) {
              const double made = x.at(t, c) - before.at(t, active * kColumns + c);
              const double want =
                  before.at(t, j * kColumns + c) + (1 + weight_of(weights, modes, t, j)) * made;
              const float got = streams.at(t, j * kColumns + c);
              ASSERT_NEAR(got, want, 1e-5 * (1 + std::abs(want))) << t << " " << j << " " << c;
              if (j != active) continue;
              ASSERT_EQ(out.at(t, c), scales ? got * scale[static_cast<size_t>(c)] : got);
            }
          }
        }
        EXPECT_TRUE(streams.gaps_untouched() && out.gaps_untouched());
      }
    }
  }
}

}  // namespace
}  // namespace headrace::altup_test
