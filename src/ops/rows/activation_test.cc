#include "ops/rows/activation.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <vector>

#include "ops/op_fixture.h"

namespace headrace::activation_test {
namespace {

TEST(GatedActivation, EveryKernelAgreesWithTheReference) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const auto activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf,
                                Activation::kRelu, Activation::kReluSquared, Activation::kTanh,
                                Activation::kSigmoid, Activation::kClampedSwish}) {
    for (const int64_t features : {1, 7, 16, 31, 100, 1536}) {
      for (const int64_t rows : {1, 3, 20}) {
        Rng rng(static_cast<uint64_t>(features * 100 + rows));
        TestMatrix gate_up(rng, rows, 2 * features, 3.0f);
        TestMatrix expected(rows, features);
        gated_activation_kernels().all().back().run(context,
                                                    {gate_up.view(), activation, expected.view()});
        for (const auto& kernel : gated_activation_kernels().all()) {
          TestMatrix out(rows, features);
          const GatedActivationArgs args{gate_up.view(), activation, out.view()};
          if (!kernel.supports(device.device().traits(), args)) continue;
          SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, features}.to_string()));
          kernel.run(context, args);
          EXPECT_TRUE(all_close(out, expected, 4e-6, 1e-6));
          EXPECT_TRUE(out.gaps_untouched());
        }
      }
    }
  }
}

TEST(GatedActivation, TheOtherFactorMayLieElsewhere) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int64_t features : {1, 31, 100}) {
    for (const int64_t rows : {1, 20}) {
      Rng rng(static_cast<uint64_t>(features + rows));
      TestMatrix gate(rng, rows, features, 3.0f), up(rng, rows, features, 3.0f);
      TestMatrix gate_up(rows, 2 * features), expected(rows, features);
      for (int64_t t = 0; t < rows; ++t) {
        for (int64_t i = 0; i < features; ++i) {
          gate_up.at(t, i) = gate.at(t, i);
          gate_up.at(t, features + i) = up.at(t, i);
        }
      }
      for (const auto& kernel : gated_activation_kernels().all()) {
        TestMatrix out = gate;
        const GatedActivationArgs args{.gate_up = out.view(),
                                       .activation = Activation::kGeluTanh,
                                       .out = out.view(),
                                       .up = up.view()};
        if (!kernel.supports(device.device().traits(), args)) continue;
        SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, features}.to_string()));
        kernel.run(context, {gate_up.view(), Activation::kGeluTanh, expected.view()});
        kernel.run(context, args);
        EXPECT_TRUE(same_bits(out, expected));
        EXPECT_TRUE(out.gaps_untouched());
      }
    }
  }
}

TEST(Activation, EveryKernelIsTheGateOfOnes) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const auto activation :
       {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf, Activation::kRelu,
        Activation::kReluSquared, Activation::kTanh, Activation::kSigmoid}) {
    for (const int64_t features : {1, 16, 31, 1536}) {
      for (const int64_t rows : {1, 20}) {
        Rng rng(static_cast<uint64_t>(features * 100 + rows));
        TestMatrix x(rng, rows, features, 3.0f), gate_up(rows, 2 * features);
        for (int64_t t = 0; t < rows; ++t) {
          for (int64_t i = 0; i < features; ++i) {
            gate_up.at(t, i) = x.at(t, i);
            gate_up.at(t, features + i) = 1.0f;
          }
        }
        TestMatrix expected(rows, features);
        gated_activation_kernels().all().back().run(context,
                                                    {gate_up.view(), activation, expected.view()});
        for (const auto& kernel : activation_kernels().all()) {
          TestMatrix out(rows, features), in_place = x;
          const ActivationArgs args{x.view(), activation, out.view()};
          if (!kernel.supports(device.device().traits(), args)) continue;
          SCOPED_TRACE((std::string(kernel.name) + " " + Shape{rows, features}.to_string()));
          kernel.run(context, args);
          EXPECT_TRUE(all_close(out, expected, 4e-6, 1e-6));
          kernel.run(context, {in_place.view(), activation, in_place.view()});
          EXPECT_TRUE(same_bits(in_place, out));
          EXPECT_TRUE(out.gaps_untouched() && in_place.gaps_untouched());
        }
      }
    }
  }
}

TEST(GatedActivation, ClampedSwishesHaveNumbersOfTheirOwn) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  constexpr int64_t kFeatures = 37;
  Rng rng(3);
  TestMatrix gate_up(rng, 5, 2 * kFeatures, 3.0f);
  for (const ClampedSwishShape& swish : {ClampedSwishShape{}, {1.1f, 1.5f}, {0.4f, 20.0f}}) {
    TestMatrix out(5, kFeatures);
    for (const auto& kernel : gated_activation_kernels().all()) {
      const GatedActivationArgs args{.gate_up = gate_up.view(),
                                     .activation = Activation::kClampedSwish,
                                     .out = out.view(),
                                     .swish = swish};
      if (!kernel.supports(device.device().traits(), args)) continue;
      SCOPED_TRACE(kernel.name);
      kernel.run(context, args);
      for (int64_t t = 0; t < out.rows(); ++t) {
        for (int64_t i = 0; i < kFeatures; ++i) {
          const double bound = swish.bound, g = std::min<double>(gate_up.at(t, i), bound);
          const double up = std::clamp<double>(gate_up.at(t, kFeatures + i), -bound, bound);
          const double expected = g / (1 + std::exp(-double{swish.slope} * g)) * (up + 1);
          EXPECT_NEAR(out.at(t, i), expected, 4e-6 * std::abs(expected) + 1e-6);
        }
      }
    }
  }
}

// silu gives away the vectorised exp: silu(-x) = -x / (1 + exp(x)), so exp(x) = -x / silu(-x) - 1.
// Far from 0 the division is the only other rounding.
TEST(GatedActivation, LargeValuesNeitherOverflowNorLoseSign) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<float> gates = {-1e30f, -200.0f, -88.0f, -30.0f, -0.0f,
                                    0.0f,   30.0f,   88.0f,  200.0f, 1e30f};
  const auto count = static_cast<int64_t>(gates.size());
  for (const auto activation : {Activation::kSilu, Activation::kGeluTanh, Activation::kGeluErf}) {
    for (const auto& kernel : gated_activation_kernels().all()) {
      TestMatrix gate_up(1, 2 * count), out(1, count);
      for (int64_t i = 0; i < count; ++i) {
        gate_up.at(0, i) = gates[static_cast<size_t>(i)];
        gate_up.at(0, count + i) = 1.0f;
      }
      const GatedActivationArgs args{gate_up.view(), activation, out.view()};
      if (!kernel.supports(device.device().traits(), args)) continue;
      SCOPED_TRACE(kernel.name);
      kernel.run(context, args);
      for (int64_t i = 0; i < count; ++i) {
        const float gate = gates[static_cast<size_t>(i)];
        EXPECT_NEAR(out.at(0, i), std::max(gate, 0.0f), 1e-6 * std::abs(gate) + 1e-11) << gate;
      }
    }
  }
}

TEST(GatedActivation, NanStaysNanAndStaysInItsPlace) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(3);
  TestMatrix gate_up(rng, 1, 128), out(1, 64);
  gate_up.at(0, 9) = std::nanf("");
  gated_activation(context, {gate_up.view(), Activation::kSilu, out.view()});
  for (int64_t i = 0; i < 64; ++i) EXPECT_EQ(std::isnan(out.at(0, i)), i == 9);
}

TEST(Activation, XieluIsWhatItsParametersSay) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  constexpr XieluParameters kParameters{.p = 0.8f, .n = 1.1f, .b = 0.5f, .e = -1e-6f};
  Rng rng(3);
  TestMatrix x(rng, 3, 37, 3.0f);
  x.at(0, 0) = 0.0f;
  for (const auto& kernel : activation_kernels().all()) {
    TestMatrix out(3, 37);
    const ActivationArgs args{x.view(), Activation::kXielu, out.view(), kParameters};
    if (!kernel.supports(device.device().traits(), args)) continue;
    SCOPED_TRACE(kernel.name);
    kernel.run(context, args);
    for (int64_t t = 0; t < 3; ++t) {
      for (int64_t i = 0; i < 37; ++i) {
        const double v = x.at(t, i);
        const double curve = v > 0 ? double{kParameters.p} * v * v
                                   : double{kParameters.n} * (std::expm1(std::min(v, -1e-6)) - v);
        EXPECT_NEAR(out.at(t, i), curve + 0.5 * v, 1e-6 * std::max(1.0, std::abs(curve)));
      }
    }
  }
}

}  // namespace
}  // namespace headrace::activation_test
