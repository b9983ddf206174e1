#include "ops/rows/residual_add.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_fixture.h"
#include "ops/rows/rms_norm.h"

namespace headrace::residual_add_test {
namespace {

// What a norm adds on its way is what the plain addition adds, bit for bit.
TEST(ResidualAdd, EveryKernelRoundsOnceAndAsTheNormDoes) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const float scale : {1.0f, 0.22f}) {
    for (const int64_t rows : {1, 40}) {
      Rng rng(7);
      TestMatrix x(rng, rows, 100), residual(rng, rows, 100);
      for (const auto& kernel : residual_add_kernels().all()) {
        TestMatrix sum = x;
        const ResidualAddArgs args{sum.view(), residual.view(), scale};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE(kernel.name);
        kernel.run(context, args);
        EXPECT_TRUE(sum.gaps_untouched());
        for (int64_t i = 0; i < 100; ++i) {
          EXPECT_EQ(sum.at(0, i), std::fma(residual.at(0, i), scale, x.at(0, i)));
        }
        TestMatrix normed_sum = x, out(rows, 100);
        const std::vector<float> weight(100, 1.0f);
        rms_norm(context, {.x = normed_sum.view(),
                           .residual = residual.view(),
                           .weight = weight.data(),
                           .eps = 1e-5f,
                           .out = out.view(),
                           .residual_scale = scale});
        EXPECT_TRUE(same_bits(sum, normed_sum));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::residual_add_test
