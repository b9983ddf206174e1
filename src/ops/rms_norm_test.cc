#include "ops/rms_norm.h"

#include <gtest/gtest.h>

#include <vector>

#include "ops/op_test_support.h"

namespace headrace {
namespace {

// Everything a case needs, the same for every kernel.
struct Case {
  TestMatrix x, residual;
  std::vector<float> weight;

  Case(int64_t rows, int64_t columns, uint64_t seed) : Case(Rng(seed), rows, columns) {}

  TestMatrix run(OpContext context, const Kernel<RmsNormArgs>& kernel, bool adds,
                 TestMatrix& x_after) {
    TestMatrix out(x.rows(), x.columns());
    x_after = x;
    const RmsNormArgs args{.x = x_after.view(),
                           .residual = adds ? ConstTensorView(residual.view()) : ConstTensorView(),
                           .weight = weight.data(),
                           .eps = 1e-5f,
                           .out = out.view()};
    EXPECT_TRUE(kernel.supports(context.device.traits(), args));
    kernel.run(context, args);
    EXPECT_TRUE(out.gaps_untouched() && x_after.gaps_untouched()) << kernel.name;
    return out;
  }

 private:
  Case(Rng rng, int64_t rows, int64_t columns)
      : x(rng, rows, columns), residual(rng, rows, columns), weight(random_floats(rng, columns)) {}
};

std::vector<Kernel<RmsNormArgs>> kernels_of(const Device& device, const RmsNormArgs& args) {
  std::vector<Kernel<RmsNormArgs>> fitting;
  for (const auto& kernel : rms_norm_kernels().all()) {
    if (kernel.supports(device.traits(), args)) fitting.push_back(kernel);
  }
  return fitting;
}

TEST(RmsNorm, EveryCpuKernelAgreesWithTheReference) {
  TestDevice device = TestDevice::cpu(2);
  for (const int64_t columns : {1, 3, 15, 16, 17, 64, 100, 576, 2049}) {
    for (const int64_t rows : {1, 2, 33}) {
      Case data(rows, columns, static_cast<uint64_t>(columns * 100 + rows));
      const RmsNormArgs probe{
          .x = data.x.view(), .residual = {}, .weight = nullptr, .eps = 0, .out = {}};
      const auto kernels = kernels_of(device.device(), probe);
      for (const bool adds : {false, true}) {
        TestMatrix x_expected(rows, columns), x_after(rows, columns);
        const TestMatrix expected = data.run(device.context(), kernels.back(), adds, x_expected);
        for (const auto& kernel : kernels) {
          SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, columns}.to_string()));
          const TestMatrix out = data.run(device.context(), kernel, adds, x_after);
          EXPECT_TRUE(all_close(out, expected, 1e-6, 2e-6));
          EXPECT_TRUE(same_bits(x_after, x_expected));
        }
      }
    }
  }
}

TEST(RmsNorm, ARowDoesNotDependOnItsBatch) {
  TestDevice device = TestDevice::cpu(2);
  Case data(40, 576, 7);
  TestMatrix out(40, 576), alone(40, 576);
  rms_norm_kernels();
  OpContext context = device.context();
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()});
  for (int64_t t = 0; t < 40; ++t) {
    rms_norm(context, {data.x.view().row_range(t, 1),
                       {},
                       data.weight.data(),
                       1e-5f,
                       alone.view().row_range(t, 1)});
  }
  EXPECT_TRUE(same_bits(out, alone));
}

TEST(RmsNorm, WorksInPlace) {
  TestDevice device = TestDevice::cpu(1);
  Case data(3, 100, 8);
  TestMatrix out(3, 100);
  OpContext context = device.context();
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()});
  rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, data.x.view()});
  EXPECT_TRUE(same_bits(data.x, out));
}

TEST(RmsNormDeathTest, NamesAShapeThatDoesNotFit) {
  TestDevice device = TestDevice::cpu(1);
  Case data(3, 100, 9);
  TestMatrix out(3, 99);
  OpContext context = device.context();
  EXPECT_DEATH(rms_norm(context, {data.x.view(), {}, data.weight.data(), 1e-5f, out.view()}),
               "args.out.shape == args.x.shape");
}

}  // namespace
}  // namespace headrace
