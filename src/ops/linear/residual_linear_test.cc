#include "ops/linear/residual_linear.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "ops/op_fixture.h"

namespace headrace::residual_linear_test {
namespace {

constexpr int64_t kRows = 5, kN = 48, kK = 64;

struct Fixture {
  TestDevice device = TestDevice::cpu(2);
  Rng rng{3};
  TestMatrix w{rng, kN, kK}, in{rng, kRows, kK}, x{rng, kRows, kN}, branch{kRows, kN};
  LinearWeight weight;
  OpHooks hooks;

  Fixture() {
    const LinearSource source{w.view(), {}};
    weight =
        std::move(LinearWeight::pack(device.device(), {&source, 1}, LinearCompute::kFast).value());
  }
  bool run(TestMatrix& to, float scale) {
    OpContext context = device.context();
    context.hooks = &hooks;
    return residual_linear(context, {.in = in.view(),
                                     .weight = &weight,
                                     .bias = nullptr,
                                     .scale = scale,
                                     .x = to.view(),
                                     .branch = branch.view()});
  }
  TestMatrix product(const TestMatrix& before, LinearOutput output) {
    OpContext context = device.context();
    TestMatrix y = before;
    linear(context,
           {.x = in.view(), .weight = &weight, .bias = nullptr, .y = y.view(), .output = output});
    return y;
  }
};

TEST(ResidualLinear, LeavesTheSumToTheNormUnlessToldOtherwise) {
  Fixture f;
  TestMatrix x = f.x;
  EXPECT_FALSE(f.run(x, 1.0f));
  EXPECT_TRUE(same_bits(x, f.x));
  EXPECT_TRUE(same_bits(f.branch, f.product(TestMatrix(kRows, kN), LinearOutput::kStore)));
}

TEST(ResidualLinear, AddsWhereThatIsPreferred) {
  Fixture f;
  f.hooks.preferred = {"residual_linear/accumulated_any_rows"};
  TestMatrix x = f.x;
  EXPECT_TRUE(f.run(x, 1.0f));
  EXPECT_TRUE(same_bits(x, f.product(f.x, LinearOutput::kAccumulate)));
  EXPECT_TRUE(same_bits(f.branch, TestMatrix(kRows, kN)));
  x = f.x;
  EXPECT_FALSE(f.run(x, 0.22f)) << "the product has no place for a factor";
  EXPECT_TRUE(same_bits(x, f.x));
}

TEST(ResidualLinear, ManyRowsOfAGpuAreAddedByTheProduct) {
  Fixture f;
  const auto kernels = residual_linear_kernels().all();
  const auto added = std::find_if(kernels.begin(), kernels.end(), [](const auto& kernel) {
    return kernel.name == "residual_linear/accumulated";
  });
  ASSERT_NE(added, kernels.end());
  TestMatrix in(512, kK);
  const auto takes = [&](const DeviceTraits& traits, int64_t rows, float scale) {
    ResidualLinearArgs args{.in = in.view(),
                            .weight = &f.weight,
                            .bias = nullptr,
                            .scale = scale,
                            .x = {},
                            .branch = {}};
    args.in.shape = Shape{rows, kK};
    return added->supports(traits, args);
  };
  const DeviceTraits gpu{.kind = DeviceKind::kCuda};
  EXPECT_TRUE(takes(gpu, 512, 1.0f));
  EXPECT_FALSE(takes(gpu, 511, 1.0f));
  EXPECT_FALSE(takes(gpu, 512, 0.5f));
  EXPECT_FALSE(takes({.kind = DeviceKind::kCuda, .batch_invariant = true}, 512, 1.0f));
  EXPECT_FALSE(takes({.kind = DeviceKind::kCpu}, 512, 1.0f));
}

// What ops have that do something else with the product: the same choice.
TEST(ResidualLinear, ItsProductGoesWhereItsKernelPutsIt) {
  Fixture f;
  TestMatrix in(512, kK), x(512, kN), branch(512, kN);
  ResidualLinearArgs args{.in = in.view(),
                          .weight = &f.weight,
                          .bias = nullptr,
                          .x = x.view(),
                          .branch = branch.view()};
  const DeviceTraits gpu{.kind = DeviceKind::kCuda}, cpu{.kind = DeviceKind::kCpu};
  const LinearArgs added = residual_product(gpu, args), later = residual_product(cpu, args);
  EXPECT_EQ(added.y.data, x.view().data);
  EXPECT_EQ(added.output, LinearOutput::kAccumulate);
  EXPECT_EQ(later.y.data, branch.view().data);
  EXPECT_EQ(later.output, LinearOutput::kStore);
  args.scale = 0.5f;
  EXPECT_EQ(residual_product(gpu, args).y.data, branch.view().data);
}

}  // namespace
}  // namespace headrace::residual_linear_test
