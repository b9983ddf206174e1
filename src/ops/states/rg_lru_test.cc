#include "ops/states/rg_lru.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/states/state_fixture.h"

namespace headrace::rg_lru_test {
namespace {

constexpr int32_t kRows = 29;

class LruTest {
 public:
  explicit LruTest(int64_t channels)
      : channels_(channels),
        x_(rng_, kRows, channels),
        in_(rng_, kRows, channels),
        forget_(rng_, kRows, channels),
        gate_(rng_, kRows, channels),
        in_bias_(random_floats(rng_, channels)),
        forget_bias_(random_floats(rng_, channels)),
        rate_(random_floats(rng_, channels)) {
    for (float& rate : rate_) rate = -std::exp(rate);
  }

  int64_t channels() const { return channels_; }
  RgLruArgs args(const StateView& states, TestMatrix& out) {
    return {.x = x_.view(),
            .in = in_.view(),
            .forget = forget_.view(),
            .gate = gate_.view(),
            .in_bias = in_bias_.data(),
            .forget_bias = forget_bias_.data(),
            .rate = rate_.data(),
            .states = states,
            .out = out.view()};
  }
  // Of one sequence of all rows, as it is written, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, channels_);
    const auto sigmoid = [](double x) { return 1 / (1 + std::exp(-x)); };
    for (int64_t c = 0; c < channels_; ++c) {
      const auto at = static_cast<size_t>(c);
      double h = 0;
      for (int32_t t = 0; t < kRows; ++t) {
        const double a = std::exp(rate_[at] * sigmoid(forget_.at(t, c) + double{forget_bias_[at]}));
        const double taken = x_.at(t, c) * sigmoid(in_.at(t, c) + double{in_bias_[at]});
        h = t == 0 ? taken : a * h + std::sqrt(1 - a * a) * taken;
        out.at(t, c) = static_cast<float>(h * gate_.at(t, c));
      }
    }
    return out;
  }

 private:
  const int64_t channels_;
  Rng rng_{3};
  TestMatrix x_, in_, forget_, gate_;
  std::vector<float> in_bias_, forget_bias_, rate_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const int64_t channels : {5, 32, 600}) {
    SCOPED_TRACE(channels);
    for (const auto& kernel : rg_lru_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      LruTest test(channels);
      TestMatrix out(kRows, channels);
      if (kernel.supports(device.device().traits(), test.args({}, out))) body(device, kernel, test);
    }
  }
}

TEST(RgLru, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, LruTest& test) {
    TestStates states(1, rg_lru_state_bytes(test.channels()));
    const StateSequence all{.row_count = kRows};
    TestMatrix out(kRows, test.channels());
    OpContext context = device.context();
    kernel.run(context, test.args(states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 2e-5, 1e-5));
  });
}

// As the test of causal_conv with this name.
TEST(RgLru, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, LruTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(kRows, test.channels(), rg_lru_state_bytes(test.channels()),
                                   [&](const StateView& states, TestMatrix& out) {
                                     kernel.run(context, test.args(states, out));
                                   });
  });
}

TEST(RgLru, KernelsForInstructionSetsGiveTheSameBits) {
  std::vector<TestMatrix> results;
  TestDevice device = TestDevice::cpu(2);
  for (const auto& kernel : rg_lru_kernels().all()) {
    LruTest test(600);
    TestMatrix out(kRows, 600);
    TestStates states(1, rg_lru_state_bytes(600));
    const StateSequence all{.row_count = kRows};
    const RgLruArgs args = test.args(states.view({&all, 1}), out);
    const bool reference = kernel.name.ends_with("reference");
    if (reference || !kernel.supports(device.device().traits(), args)) continue;
    OpContext context = device.context();
    kernel.run(context, args);
    results.push_back(out);
  }
  for (const TestMatrix& other : results) EXPECT_TRUE(same_bits(other, results.front()));
}

}  // namespace
}  // namespace headrace::rg_lru_test
