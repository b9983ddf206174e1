#include "ops/states/selective_scan.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::selective_scan_test {
namespace {

struct ScanSizes {
  int64_t channels;
  int32_t state_dim;
};
constexpr ScanSizes kCases[] = {{64, 16}, {40, 5}, {7, 33}, {100, 16}};

class ScanTest {
 public:
  static constexpr int32_t kRows = 37;

  explicit ScanTest(const ScanSizes& sizes)
      : sizes_(sizes),
        rng_(static_cast<uint64_t>(sizes.channels)),
        x_(rng_, kRows, sizes.channels),
        z_(rng_, kRows, sizes.channels, 3.0f),
        dt_(rng_, kRows, sizes.channels, 2.0f),
        b_(rng_, kRows, sizes.state_dim),
        c_(rng_, kRows, sizes.state_dim),
        rate_(random_floats(rng_, sizes.channels * sizes.state_dim)),
        dt_bias_(random_floats(rng_, sizes.channels)),
        skip_(random_floats(rng_, sizes.channels)) {
    for (float& rate : rate_) rate = -std::exp(rate);
    dt_.at(3, 0) = 50;  // softplus of these is themselves, and nothing
    dt_.at(4, 0) = -50;
  }

  int64_t state_bytes() const {
    return selective_scan_state_bytes(sizes_.state_dim, sizes_.channels);
  }
  SelectiveScanArgs args(const StateView& states, TestMatrix& out) {
    return {.state_dim = sizes_.state_dim,
            .x = x_.view(),
            .z = z_.view(),
            .dt = dt_.view(),
            .b = b_.view(),
            .c = c_.view(),
            .rate = rate_.data(),
            .dt_bias = dt_bias_.data(),
            .skip = skip_.data(),
            .states = states,
            .out = out.view()};
  }
  const TestMatrix& x() const { return x_; }

  // As it is written, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, sizes_.channels);
    for (int64_t c = 0; c < sizes_.channels; ++c) {
      const auto channel = static_cast<size_t>(c);
      std::vector<double> state(static_cast<size_t>(sizes_.state_dim));
      for (int32_t t = 0; t < kRows; ++t) {
        const double dt = std::log1p(std::exp(double{dt_.at(t, c)} + dt_bias_[channel]));
        double y = double{skip_[channel]} * x_.at(t, c);
        for (size_t n = 0; n < state.size(); ++n) {
          const double rate = rate_[n * static_cast<size_t>(sizes_.channels) + channel];
          const auto at = static_cast<int64_t>(n);
          state[n] = std::exp(rate * dt) * state[n] + dt * b_.at(t, at) * x_.at(t, c);
          y += state[n] * c_.at(t, at);
        }
        const double gate = z_.at(t, c);
        out.at(t, c) = static_cast<float>(y * gate / (1 + std::exp(-gate)));
      }
    }
    return out;
  }

 private:
  const ScanSizes sizes_;
  Rng rng_;
  TestMatrix x_, z_, dt_, b_, c_;
  std::vector<float> rate_, dt_bias_, skip_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const ScanSizes& sizes : kCases) {
    SCOPED_TRACE(testing::Message() << sizes.channels << " of " << sizes.state_dim);
    for (const auto& kernel : selective_scan_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      ScanTest test(sizes);
      TestMatrix out(ScanTest::kRows, sizes.channels);
      if (!kernel.supports(device.device().traits(), test.args({}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(SelectiveScan, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ScanTest& test) {
    TestStates states(1, test.state_bytes());
    const StateSequence all{.row_count = ScanTest::kRows};
    TestMatrix out(ScanTest::kRows, test.x().columns());
    OpContext context = device.context();
    kernel.run(context, test.args(states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 2e-5, 1e-5));
  });
}

// As the test of causal_conv with this name.
TEST(SelectiveScan, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ScanTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(ScanTest::kRows, test.x().columns(), test.state_bytes(),
                                   [&](const StateView& states, TestMatrix& out) {
                                     kernel.run(context, test.args(states, out));
                                   });
  });
}

// The instruction sets do the same operations in the same order; out may lie over x.
TEST(SelectiveScan, KernelsForInstructionSetsGiveTheSameBits) {
  TestDevice device = TestDevice::cpu(2);
  for (const ScanSizes& sizes : kCases) {
    std::vector<TestMatrix> results;
    for (const auto& kernel : selective_scan_kernels().all()) {
      ScanTest test(sizes);
      TestMatrix out(ScanTest::kRows, sizes.channels);
      TestStates states(1, test.state_bytes());
      const StateSequence all{.row_count = ScanTest::kRows};
      SelectiveScanArgs args = test.args(states.view({&all, 1}), out);
      const bool reference = kernel.name.ends_with("reference");
      if (reference || !kernel.supports(device.device().traits(), args)) continue;
      OpContext context = device.context();
      kernel.run(context, args);
      results.push_back(out);
      TestMatrix in_place = test.x();
      args.x = in_place.view();
      args.out = in_place.view();
      kernel.run(context, args);
      EXPECT_TRUE(same_bits(in_place, out));
    }
    for (const TestMatrix& other : results) EXPECT_TRUE(same_bits(other, results.front()));
  }
}

}  // namespace
}  // namespace headrace::selective_scan_test
