#include "ops/residual_linear.h"

#include <gtest/gtest.h>

#include "ops/op_test_support.h"

namespace headrace {
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
  f.hooks.preferred = {"residual_linear/accumulated"};
  TestMatrix x = f.x;
  EXPECT_TRUE(f.run(x, 1.0f));
  EXPECT_TRUE(same_bits(x, f.product(f.x, LinearOutput::kAccumulate)));
  EXPECT_TRUE(same_bits(f.branch, TestMatrix(kRows, kN)));
  x = f.x;
  EXPECT_FALSE(f.run(x, 0.22f)) << "the product has no place for a factor";
  EXPECT_TRUE(same_bits(x, f.x));
}

}  // namespace
}  // namespace headrace
