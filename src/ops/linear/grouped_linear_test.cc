#include "ops/linear/grouped_linear.h"

#include <gtest/gtest.h>

#include <cmath>
#include <span>
#include <utility>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::grouped_linear_test {
namespace {

LinearWeight weight_of(Device& device, std::vector<float>& values, int64_t n, int64_t k) {
  const LinearSource source{
      {reinterpret_cast<const std::byte*>(values.data()), DType::kF32, Shape{n, k}}, {}};
  return std::move(LinearWeight::pack(device, {&source, 1}, LinearCompute::kFloat32).value());
}

// Three experts of a matrix [2, 2] each; the second has no row.
TEST(GroupedLinear, MultipliesEachRowByItsExpert) {
  TestDevice cpu = TestDevice::cpu(1);
  std::vector<float> values = {1, 0, 0, 1, 9, 9, 9, 9, 2, 0, 1, 1};
  const LinearWeight weight = weight_of(cpu.device(), values, 6, 2);
  const std::vector<int32_t> starts = {0, 2, 2, 3}, rows = {1, 2, 1};
  Rng rng(1);
  TestMatrix x(rng, 3, 2), y(3, 2);
  OpContext context = cpu.context();
  grouped_linear(context, {.x = x.view(),
                           .weight = &weight,
                           .starts = starts,
                           .rows = rows,
                           .gate = std::nullopt,
                           .y = y.view()});
  EXPECT_FLOAT_EQ(y.at(0, 0), x.at(1, 0));
  EXPECT_FLOAT_EQ(y.at(0, 1), x.at(1, 1));
  EXPECT_FLOAT_EQ(y.at(1, 0), x.at(2, 0));
  EXPECT_FLOAT_EQ(y.at(2, 0), 2 * x.at(1, 0));
  EXPECT_FLOAT_EQ(y.at(2, 1), x.at(1, 0) + x.at(1, 1));
  EXPECT_TRUE(y.gaps_untouched());
}

// The second and third expert of four, whose list it is.
TEST(GroupedLinear, MultipliesItsPartOfAList) {
  TestDevice cpu = TestDevice::cpu(1);
  std::vector<float> values = {2, 3};
  const LinearWeight weight = weight_of(cpu.device(), values, 2, 1);
  const std::vector<int32_t> starts = {0, 2, 3, 5, 6}, rows = {0, 1, 1, 0, 1, 0};
  TestMatrix x(2, 1), y(6, 1);
  x.at(0, 0) = 10.0f;
  x.at(1, 0) = 1.0f;
  for (int64_t i = 0; i < 6; ++i) y.at(i, 0) = -1.0f;
  OpContext context = cpu.context();
  const GroupedLinearArgs args{.x = x.view(),
                               .weight = &weight,
                               .starts = std::span(starts).subspan(1, 3),
                               .rows = rows,
                               .gate = std::nullopt,
                               .y = y.view(),
                               .listed_experts = 4};
  EXPECT_EQ(args.rows_about(), 3);
  grouped_linear(context, args);
  for (const auto& [i, expected] :
       std::vector<std::pair<int64_t, float>>{{2, 2}, {3, 30}, {4, 3}, {1, -1}, {5, -1}}) {
    EXPECT_EQ(y.at(i, 0), expected) << i;
  }
}

TEST(GroupedLinear, GatesWhatItMultiplies) {
  TestDevice cpu = TestDevice::cpu(1);
  std::vector<float> values = {1, 3, 2, 5};  // [gate, up] of two experts, K 1
  const LinearWeight weight = weight_of(cpu.device(), values, 4, 1);
  const std::vector<int32_t> starts = {0, 1, 2};
  TestMatrix x(2, 1), y(2, 1);
  x.at(0, 0) = 0.5f;
  x.at(1, 0) = -1.0f;
  OpContext context = cpu.context();
  grouped_linear(context, {.x = x.view(),
                           .weight = &weight,
                           .starts = starts,
                           .rows = {},
                           .gate = Activation::kSilu,
                           .y = y.view()});
  const auto silu = [](double v) { return v / (1 + std::exp(-v)); };
  EXPECT_NEAR(y.at(0, 0), silu(0.5) * 1.5, 1e-6);
  EXPECT_NEAR(y.at(1, 0), silu(-2) * -5, 1e-6);
}

}  // namespace
}  // namespace headrace::grouped_linear_test
