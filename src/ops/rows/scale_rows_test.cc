#include "ops/rows/scale_rows.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::scale_rows_test {
namespace {

TEST(ScaleRows, EveryElementIsAddedToMultipliedAndDivided) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t rows : {0, 1, 3, 40}) {
    for (const float scale : {1.0f, 0.3f, -2.0f}) {
      for (const float divisor : {1.0f, 3.0f}) {
        for (const bool adds : {false, true}) {
          Rng rng(static_cast<uint64_t>(rows));
          const TestMatrix before(rng, rows, 37, 2.0f);
          TestMatrix x = before, added(rng, rows, 37);
          ScaleRowsArgs args{.x = x.view(), .scale = scale, .divisor = divisor};
          if (adds) args.added = added.view();
          scale_rows(context, args);
          for (int64_t t = 0; t < rows; ++t) {
            for (int64_t i = 0; i < 37; ++i) {
              const float sum = adds ? before.at(t, i) + added.at(t, i) : before.at(t, i);
              ASSERT_EQ(x.at(t, i), sum * scale / divisor);
            }
          }
          EXPECT_TRUE(x.gaps_untouched());
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::scale_rows_test
