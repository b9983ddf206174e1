#include "ops/rows/layer_norm.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::layer_norm_test {
namespace {

struct Case {
  TestMatrix x, residual;
  std::vector<float> weight, bias;
};

Case random_case(int64_t rows, int64_t columns) {
  Rng rng(static_cast<uint64_t>(rows * 1000 + columns));
  Case c{TestMatrix(rng, rows, columns), TestMatrix(rng, rows, columns),
         random_floats(rng, columns), random_floats(rng, columns)};
  for (int64_t t = 0; t < rows; ++t) {
    for (int64_t i = 0; i < columns; ++i) c.x.at(t, i) += 5.0f;  // a mean that must go
  }
  return c;
}

TEST(LayerNorm, EveryKernelIsTheFormula) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  constexpr float kEps = 1e-5f, kScale = 0.5f;
  for (const int64_t columns : {2, 17, 64, 300}) {
    for (const int64_t rows : {1, 3, 20}) {
      const Case c = random_case(rows, columns);
      for (const auto& kernel : layer_norm_kernels().all()) {
        TestMatrix x = c.x, residual = c.residual, out(rows, columns);
        const LayerNormArgs args{.x = x.view(),
                                 .residual = residual.view(),
                                 .weight = c.weight.data(),
                                 .bias = c.bias.data(),
                                 .eps = kEps,
                                 .out = out.view(),
                                 .residual_scale = kScale};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, columns}.to_string()));
        kernel.run(context, args);
        for (int64_t t = 0; t < rows; ++t) {
          long double mean = 0, variance = 0;
          for (int64_t i = 0; i < columns; ++i) {
            EXPECT_EQ(x.at(t, i), std::fma(c.residual.at(t, i), kScale, c.x.at(t, i)));
            mean += x.at(t, i);
          }
          mean /= static_cast<long double>(columns);
          for (int64_t i = 0; i < columns; ++i) {
            variance += (x.at(t, i) - mean) * (x.at(t, i) - mean);
          }
          variance /= static_cast<long double>(columns);
          for (int64_t i = 0; i < columns; ++i) {
            const auto column = static_cast<size_t>(i);
            const double expected = static_cast<double>(
                (x.at(t, i) - mean) / std::sqrt(variance + kEps) * c.weight[column] +
                c.bias[column]);
            ASSERT_NEAR(out.at(t, i), expected, 1e-6 * (1 + std::abs(expected)));
          }
        }
        EXPECT_TRUE(out.gaps_untouched() && x.gaps_untouched());
      }
    }
  }
}

TensorView columns_of(TestMatrix& matrix, int64_t first, int64_t count) {
  const TensorView all = matrix.view();
  return {all.data + first * 4, all.dtype, Shape{all.rows(), count}, all.row_stride};
}

// Heads side by side have the bits of rows of their own.
TEST(LayerNorm, GroupsAreRowsOfTheirOwn) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  constexpr int64_t kRows = 33;
  for (const int32_t groups : {1, 3, 6}) {
    for (const int64_t width : {1, 8, 20, 64}) {
      const Case c = random_case(kRows, groups * width);
      for (const auto& kernel : layer_norm_kernels().all()) {
        TestMatrix together = c.x, apart = c.x, residual = c.residual;
        LayerNormArgs args{.x = together.view(),
                           .residual = residual.view(),
                           .weight = c.weight.data(),
                           .bias = c.bias.data(),
                           .eps = 1e-5f,
                           .out = together.view(),
                           .groups = groups};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE((std::string(kernel.name) + " " + Shape{groups, width}.to_string()));
        kernel.run(context, args);
        args.groups = 1;
        for (int64_t g = 0; g < groups; ++g) {
          args.x = args.out = columns_of(apart, g * width, width);
          args.residual = columns_of(residual, g * width, width);
          args.weight = c.weight.data() + g * width;
          args.bias = c.bias.data() + g * width;
          kernel.run(context, args);
        }
        EXPECT_TRUE(same_bits(together, apart));
        EXPECT_TRUE(together.gaps_untouched());
      }
    }
  }
}

TEST(LayerNorm, EveryInstructionSetGivesTheSameBits) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t columns : {1, 3, 15, 16, 17, 64, 100, 576, 2049}) {
    const Case c = random_case(33, columns);
    std::vector<TestMatrix> results;
    for (const auto& kernel : layer_norm_kernels().all()) {
      TestMatrix x = c.x, residual = c.residual, out(33, columns);
      const LayerNormArgs args{.x = x.view(),
                               .residual = residual.view(),
                               .weight = c.weight.data(),
                               .bias = c.bias.data(),
                               .eps = 1e-5f,
                               .out = out.view()};
      if (!kernel.supports(device.device().traits(), args)) continue;
      if (kernel.name.ends_with("/reference")) continue;  // of doubles
      kernel.run(context, args);
      results.push_back(std::move(out));
    }
    for (const TestMatrix& result : results) {
      EXPECT_TRUE(same_bits(result, results.front())) << columns;
    }
  }
}

// A row whose mean is a thousand of its deviations.
TEST(LayerNorm, AFarMeanCostsNoDigits) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  constexpr int64_t kColumns = 4096;
  Case c = random_case(3, kColumns);
  for (int64_t t = 0; t < 3; ++t) {
    for (int64_t i = 0; i < kColumns; ++i) c.x.at(t, i) += 1000.0f;
  }
  const LayerNormArgs probe{
      .x = c.x.view(), .residual = {}, .weight = nullptr, .bias = nullptr, .eps = 0, .out = {}};
  const auto run = [&](const Kernel<LayerNormArgs>& kernel) {
    TestMatrix x = c.x, out(3, kColumns);
    const LayerNormArgs args{.x = x.view(),
                             .residual = {},
                             .weight = c.weight.data(),
                             .bias = c.bias.data(),
                             .eps = 1e-5f,
                             .out = out.view()};
    kernel.run(context, args);
    return out;
  };
  const TestMatrix expected = run(layer_norm_kernels().all().back());
  for (const auto& kernel : layer_norm_kernels().all()) {
    if (kernel.supports(device.device().traits(), probe)) {
      EXPECT_TRUE(all_close(run(kernel), expected, 1e-6, 1e-6)) << kernel.name;
    }
  }
}

TEST(LayerNorm, InPlaceAndAloneGiveTheSameBits) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  const Case c = random_case(20, 100);
  TestMatrix x = c.x, in_place = c.x, out(20, 100), alone(20, 100);
  const auto run = [&](TensorView from, TensorView to) {
    layer_norm(context, {.x = from,
                         .residual = {},
                         .weight = c.weight.data(),
                         .bias = c.bias.data(),
                         .eps = 1e-5f,
                         .out = to});
  };
  run(x.view(), out.view());
  EXPECT_TRUE(same_bits(x, c.x));  // without a residual x is only read
  run(in_place.view(), in_place.view());
  EXPECT_TRUE(same_bits(in_place, out));
  for (int64_t t = 0; t < 20; ++t) {
    run(x.view().row_range(t, 1), alone.view().row_range(t, 1));
  }
  EXPECT_TRUE(same_bits(alone, out));
}

}  // namespace
}  // namespace headrace::layer_norm_test
