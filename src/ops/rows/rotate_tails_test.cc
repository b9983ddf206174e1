#include "ops/rows/rotate_tails.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::rotate_tails_test {
namespace {

constexpr int32_t kHeads = 3, kDim = 10, kPairs = 4;

// Pairs of neighbours turn by their angle as complex numbers do.
TEST(RotateTails, TurnsTheLastPairsOfEachHeadAndBack) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {1, 5, 30}) {
    Rng rng(static_cast<uint64_t>(rows));
    const TestMatrix before(rng, rows, int64_t{kHeads} * kDim);
    TestMatrix angles(rng, rows, kPairs, 3.0f), cos(rows, kPairs), sin(rows, kPairs);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t i = 0; i < kPairs; ++i) {
        cos.at(t, i) = std::cos(angles.at(t, i));
        sin.at(t, i) = std::sin(angles.at(t, i));
      }
    }
    TestMatrix x = before;
    RotateTailsArgs args{.x = x.view(), .cos = cos.view(), .sin = sin.view(), .head_dim = kDim};
    rotate_tails(context, args);
    for (int64_t t = 0; t < rows; ++t) {
      for (int64_t c = 0; c < x.columns(); ++c) {
        const int64_t in_tail = c % kDim - (kDim - 2 * kPairs);
        double want = before.at(t, c);
        if (in_tail >= 0) {
          const double angle = angles.at(t, in_tail / 2);
          const double other = before.at(t, in_tail % 2 == 0 ? c + 1 : c - 1);
          want = want * std::cos(angle) + (in_tail % 2 == 0 ? -1 : 1) * other * std::sin(angle);
        }
        ASSERT_NEAR(x.at(t, c), want, 1e-5) << t << " " << c;
      }
    }
    args.backwards = true;
    rotate_tails(context, args);
    EXPECT_TRUE(all_close(x, before, 1e-6, 1e-6));
    EXPECT_TRUE(x.gaps_untouched());
  }
}

}  // namespace
}  // namespace headrace::rotate_tails_test
