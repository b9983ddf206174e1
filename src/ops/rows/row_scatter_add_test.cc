#include "ops/rows/row_scatter_add.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::row_scatter_add_test {
namespace {

TEST(RowScatterAdd, EveryKernelAddsScaledRowsToThoseNamed) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t columns : {1, 17, 100}) {
    for (const int64_t count : {1, 3, 40}) {
      Rng rng(static_cast<uint64_t>(columns + count));
      TestMatrix x(rng, count, columns);
      const TestMatrix before(rng, 50, columns);
      std::vector<int32_t> rows;
      for (int32_t i = 0; i < count; ++i) rows.push_back(49 - i);
      const std::vector<float> scales = random_floats(rng, count);
      for (const auto& kernel : row_scatter_add_kernels().all()) {
        TestMatrix out = before;
        const RowScatterAddArgs args{x.view(), rows, scales, out.view()};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE(kernel.name);
        kernel.run(context, args);
        EXPECT_TRUE(out.gaps_untouched());
        for (int64_t t = 0; t < 50; ++t) {
          const int64_t from = 49 - t;
          for (int64_t i = 0; i < columns; ++i) {
            volatile float product = 0;  // rounded by itself
            if (from < count) product = scales[static_cast<size_t>(from)] * x.at(from, i);
            EXPECT_EQ(out.at(t, i), before.at(t, i) + product);
          }
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::row_scatter_add_test
