#include "ops/linear/activated_linear.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::activated_linear_test {
namespace {

TEST(ActivatedLinear, OnACpuIsTwoOps) {
  constexpr int64_t kRows = 5, kN = 48, kK = 64;
  TestDevice device = TestDevice::cpu(2);
  Rng rng{3};
  TestMatrix w{rng, kN, kK}, gate_up{rng, kRows, 2 * kK}, activated{kRows, kK}, y{kRows, kN};
  const LinearSource source{w.view(), {}};
  const LinearWeight weight =
      LinearWeight::pack(device.device(), {&source, 1}, LinearCompute::kFast).value();
  OpContext context = device.context();
  const ActivatedLinearArgs args{
      .gates = {.gate_up = gate_up.view(),
                .activation = Activation::kGeluTanh,
                .out = activated.view()},
      .linear = {.x = activated.view(), .weight = &weight, .bias = nullptr, .y = y.view()}};
  EXPECT_FALSE(activation_joins(context, args)) << "gate_up's product may have the gates there";
  activated_linear(context, args);

  TestMatrix expected_rows{kRows, kK}, expected{kRows, kN};
  gated_activation(context, {.gate_up = gate_up.view(),
                             .activation = Activation::kGeluTanh,
                             .out = expected_rows.view()});
  linear(context,
         {.x = expected_rows.view(), .weight = &weight, .bias = nullptr, .y = expected.view()});
  EXPECT_TRUE(same_bits(activated, expected_rows));
  EXPECT_TRUE(same_bits(y, expected));
}

}  // namespace
}  // namespace headrace::activated_linear_test
