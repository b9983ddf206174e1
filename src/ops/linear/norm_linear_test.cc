#include "ops/linear/norm_linear.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::norm_linear_test {
namespace {

constexpr int64_t kRows = 9, kK = 64, kFeatures = 24;

// On a CPU: the ops one after the other, with and without a residual.
class NormLinearTest : public testing::Test {
 protected:
  NormLinearTest() {
    const LinearSource source{w_.view(), {}};
    weight_ =
        std::move(LinearWeight::pack(device_.device(), {&source, 1}, LinearCompute::kFast).value());
  }
  RmsNormArgs norm(TestMatrix& x, TestMatrix& residual, TestMatrix& out, bool adds) {
    return {.x = x.view(),
            .residual = adds ? ConstTensorView(residual.view()) : ConstTensorView(),
            .weight = norm_weight_.data(),
            .eps = 1e-5f,
            .out = out.view()};
  }

  TestDevice device_ = TestDevice::cpu(2);
  Rng rng_{5};
  TestMatrix w_{rng_, 2 * kFeatures, kK}, x_{rng_, kRows, kK}, residual_{rng_, kRows, kK};
  const std::vector<float> norm_weight_ = random_floats(rng_, kK);
  const std::vector<float> bias_ = random_floats(rng_, 2 * kFeatures);
  LinearWeight weight_;
};

TEST_F(NormLinearTest, TwoOpsAreTheNormThenTheProduct) {
  OpContext context = device_.context();
  for (const bool adds : {false, true}) {
    TestMatrix x = x_, normed(kRows, kK), y(kRows, 2 * kFeatures);
    const RmsNormArgs args = norm(x, residual_, normed, adds);
    norm_linear(
        context,
        {.norm = args,
         .linear = {.x = args.out, .weight = &weight_, .bias = bias_.data(), .y = y.view()}});
    TestMatrix sum = x_, rows(kRows, kK), expected(kRows, 2 * kFeatures);
    rms_norm(context, norm(sum, residual_, rows, adds));
    linear(context,
           {.x = rows.view(), .weight = &weight_, .bias = bias_.data(), .y = expected.view()});
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_TRUE(same_bits(x, sum));
  }
}

TEST_F(NormLinearTest, TwoGatedOpsAreTheNormThenTheGatedProduct) {
  OpContext context = device_.context();
  for (const bool adds : {false, true}) {
    TestMatrix x = x_, normed(kRows, kK), scratch(kRows, 2 * kFeatures), y(kRows, kFeatures);
    const RmsNormArgs args = norm(x, residual_, normed, adds);
    const auto gated = [&](const TensorView& rows, TestMatrix& out) {
      return GatedLinearArgs{.x = rows,
                             .weight = &weight_,
                             .bias = bias_.data(),
                             .activation = Activation::kGeluTanh,
                             .gate_up = scratch.view(),
                             .y = out.view()};
    };
    norm_gated_linear(context, {.norm = args, .gated = gated(args.out, y)});
    TestMatrix sum = x_, rows(kRows, kK), expected(kRows, kFeatures);
    rms_norm(context, norm(sum, residual_, rows, adds));
    gated_linear(context, gated(rows.view(), expected));
    EXPECT_TRUE(same_bits(y, expected));
    EXPECT_TRUE(same_bits(x, sum));
  }
}

}  // namespace
}  // namespace headrace::norm_linear_test
