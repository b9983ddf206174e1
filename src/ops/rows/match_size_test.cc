#include "ops/rows/match_size.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::match_size_test {
namespace {

double size_of(const TestMatrix& x, int64_t t, double least) {
  double squares = 0;
  for (int64_t i = 0; i < x.columns(); ++i) squares += std::pow(double{x.at(t, i)}, 2);
  return std::sqrt(std::max(squares / static_cast<double>(x.columns()), least));
}

TEST(MatchSize, RowsAreAsLargeAsOthers) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 20}) {
    for (const float least : {0.0f, 9.0f}) {
      for (const bool adds : {false, true}) {
        constexpr int64_t kColumns = 37;
        Rng rng(static_cast<uint64_t>(rows + 1));
        TestMatrix x(rng, rows, kColumns), like(rng, rows, kColumns, 3.0f);
        const TestMatrix before(rng, rows, kColumns);
        TestMatrix out = before, in_place = x;
        MatchSizeArgs args{
            .x = x.view(), .like = like.view(), .least = least, .out = out.view(), .adds = adds};
        match_size(context, args);
        for (int64_t t = 0; t < rows; ++t) {
          const double by = size_of(like, t, 0) / size_of(x, t, double{least});
          for (int64_t i = 0; i < kColumns; ++i) {
            const double want = x.at(t, i) * by + (adds ? before.at(t, i) : 0.0f);
            ASSERT_NEAR(out.at(t, i), want, 2e-6 * (1 + std::abs(want))) << t << " " << i;
          }
        }
        EXPECT_TRUE(out.gaps_untouched());
        if (adds) continue;
        args.x = args.out = in_place.view();
        match_size(context, args);
        EXPECT_TRUE(same_bits(in_place, out));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::match_size_test
