#include "models/parts/dense_feed_forward.h"

#include <gtest/gtest.h>

#include <algorithm>

#include "models/parts/part_fixture.h"

namespace headrace::dense_feed_forward_test {
namespace {

constexpr int64_t kHidden = 24;
constexpr int32_t kWidth = 40;

double activation_of(Activation activation, double x) {
  if (activation == Activation::kSilu) return x / (1 + std::exp(-x));
  return x / 2 * (1 + std::tanh(std::sqrt(2 / M_PI) * (x + 0.044715 * x * x * x)));
}

Row plus(Row y, const MadeTensors& tensors, const std::string& name, bool bias) {
  if (!bias) return y;
  for (size_t i = 0; i < y.size(); ++i) y[i] += tensors.values(name + ".bias")[i];
  return y;
}

Row expected_row(const DenseSpec& spec, const MadeTensors& tensors, const Row& x) {
  const auto product = [&](const std::string& name, const Row& in) {
    return plus(times(tensors.values(name + ".weight"), in), tensors, name, spec.bias);
  };
  const auto width = static_cast<size_t>(spec.width);
  Row up = product("ffn_up", x);
  Row gate = spec.tensors == DenseTensors::kGated ? product("ffn_gate", x) : Row();
  if (spec.tensors == DenseTensors::kGatedFused) {
    gate.assign(up.begin(), up.begin() + spec.width);
    up.erase(up.begin(), up.begin() + spec.width);
  }
  const GateLimits& limits = spec.limits;
  for (size_t i = 0; i < width && limits.any(); ++i) {
    gate[i] = std::min(gate[i], double{limits.gate});
    up[i] = std::clamp(up[i], -double{limits.up}, double{limits.up});
  }
  for (size_t i = 0; i < width; ++i) {
    up[i] = gate.empty() ? activation_of(spec.activation, up[i])
                         : activation_of(spec.activation, gate[i]) * up[i];
  }
  Row y = product("ffn_down", up);
  for (size_t i = 0; i < y.size(); ++i) y[i] += x[i];
  return y;
}

TEST(DenseFeedForward, EqualsPlainLoopsWithScratchSharedOrApart) {
  for (const auto tensors :
       {DenseTensors::kGated, DenseTensors::kGatedFused, DenseTensors::kPlain}) {
    for (const auto activation : {Activation::kSilu, Activation::kGeluTanh}) {
      for (const bool bias : {false, true}) {
        SCOPED_TRACE(testing::Message() << static_cast<int>(tensors) << " " << bias);
        const DenseSpec spec{
            .width = kWidth, .tensors = tensors, .activation = activation, .bias = bias};
        PartPass shared(9, kHidden, /*in_place=*/true), apart(9, kHidden, /*in_place=*/false);
        const auto part = make_part(spec, kHidden);
        MadeTensors made(shared.device());
        ASSERT_TRUE(part->load(made).ok());
        Rng rng(3);
        const TestMatrix x(rng, 9, kHidden);
        Rows expected = rows_of(x);
        for (Row& row : expected) row = expected_row(spec, made, row);
        TestMatrix with_shared = x, with_apart = x;
        shared.run(*part, with_shared);
        apart.run(*part, with_apart);
        EXPECT_TRUE(rows_close(with_shared, expected));
        EXPECT_TRUE(same_bits(with_apart, with_shared));
      }
    }
  }
}

TEST(DenseFeedForward, GatesAndUpsHaveLimits) {
  for (const auto tensors : {DenseTensors::kGated, DenseTensors::kGatedFused}) {
    const DenseSpec spec{.width = kWidth, .tensors = tensors, .limits = {.gate = 0.3f, .up = 0.5f}};
    PartPass shared(9, kHidden, /*in_place=*/true), apart(9, kHidden, /*in_place=*/false);
    const auto part = make_part(spec, kHidden);
    MadeTensors made(shared.device());
    ASSERT_TRUE(part->load(made).ok());
    Rng rng(3);
    const TestMatrix x(rng, 9, kHidden);
    Rows expected = rows_of(x), unlimited = expected;
    for (Row& row : expected) row = expected_row(spec, made, row);
    const DenseSpec without{.width = kWidth, .tensors = tensors};
    for (Row& row : unlimited) row = expected_row(without, made, row);
    TestMatrix with_shared = x, with_apart = x;
    shared.run(*part, with_shared);
    apart.run(*part, with_apart);
    EXPECT_TRUE(rows_close(with_shared, expected));
    EXPECT_FALSE(rows_close(with_shared, unlimited));
    EXPECT_TRUE(same_bits(with_apart, with_shared));
    DeviceTraits gpu;
    gpu.kind = DeviceKind::kCuda;
    EXPECT_EQ(part->check_device(gpu, DType::kBF16).message(),
              "networks whose gates have a limit have no kernels on a GPU yet: use --device cpu");
  }
}

TEST(DenseFeedForward, AsksForItsTensorsInTheOrderOfFiles) {
  const auto names = [&](const DenseSpec& spec) {
    TestDevice one = TestDevice::cpu(1);
    MadeTensors made(one.device());
    EXPECT_TRUE(make_part(spec, kHidden)->load(made).ok());
    return made.names();
  };
  using Names = std::vector<std::string>;
  EXPECT_EQ(names({.width = kWidth}),
            (Names{"ffn_gate.weight", "ffn_up.weight", "ffn_down.weight"}));
  EXPECT_EQ(names({.width = kWidth, .tensors = DenseTensors::kGatedFused}),
            (Names{"ffn_up.weight", "ffn_down.weight"}));
  EXPECT_EQ(names({.width = kWidth, .tensors = DenseTensors::kPlain, .bias = true}),
            (Names{"ffn_up.weight", "ffn_up.bias", "ffn_down.weight", "ffn_down.bias"}));
}

// Activated rows have an area of their own only where they may not lie over their gates.
TEST(DenseFeedForward, ScratchIsSmallerInPlace) {
  const auto gated = make_part(DenseSpec{.width = kWidth}, kHidden);
  EXPECT_EQ(gated->scratch_columns(true), std::vector<int64_t>({2 * kWidth}));
  EXPECT_EQ(gated->scratch_columns(false), std::vector<int64_t>({2 * kWidth, kWidth}));
}

}  // namespace
}  // namespace headrace::dense_feed_forward_test
