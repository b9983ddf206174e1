#include "ops/states/ssd_scan.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::ssd_scan_test {
namespace {

const SsdHeads kCases[] = {
    {.heads = 4, .head_dim = 32, .groups = 2, .state_dim = 16},
    {.heads = 1, .head_dim = 40, .groups = 1, .state_dim = 25},
    {.heads = 2, .head_dim = 12, .groups = 2, .state_dim = 8},
    {.heads = 3, .head_dim = 64, .groups = 1, .state_dim = 128},
};

class ScanTest {
 public:
  static constexpr int32_t kRows = 37;

  explicit ScanTest(const SsdHeads& heads)
      : heads_(heads),
        rng_(static_cast<uint64_t>(heads.head_dim)),
        xbc_(rng_, kRows, heads.xbc()),
        dt_(rng_, kRows, 2 * heads.heads),
        rate_(random_floats(rng_, heads.heads)),
        dt_bias_(random_floats(rng_, heads.heads)),
        skip_(random_floats(rng_, heads.heads)) {
    for (float& rate : rate_) rate = -std::exp(rate);
  }

  const SsdHeads& heads() const { return heads_; }
  // The op leaves other numbers in the place of dt.
  TestMatrix dt() const { return dt_; }
  SsdScanArgs args(TestMatrix& dt, const StateView& states, TestMatrix& out) {
    return {.heads = heads_,
            .xbc = xbc_.view(),
            .dt = dt.view(),
            .rate = rate_.data(),
            .dt_bias = dt_bias_.data(),
            .skip = skip_.data(),
            .time_step = kRule,
            .states = states,
            .out = out.view()};
  }

  // As it is written, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, heads_.values());
    for (int32_t head = 0; head < heads_.heads; ++head) {
      for (int32_t p = 0; p < heads_.head_dim; ++p) run_column(head, p, out);
    }
    return out;
  }

 private:
  // Some steps are cut at either end.
  static constexpr TimeStepRule kRule{.scale = 1.5f, .min = 0.1f, .max = 2.0f};

  void run_column(int32_t head, int32_t p, TestMatrix& out) const {
    const int64_t column = int64_t{head} * heads_.head_dim + p;
    const int64_t b =
        heads_.values() + head / (heads_.heads / heads_.groups) * int64_t{heads_.state_dim};
    const auto of_head = static_cast<size_t>(head);
    std::vector<double> state(static_cast<size_t>(heads_.state_dim));
    for (int32_t t = 0; t < kRows; ++t) {
      const double raw = 1.5 * dt_.at(t, head) + dt_bias_[of_head];
      const double dt = std::clamp(std::log1p(std::exp(raw)), 0.1, 2.0);
      const double x = xbc_.at(t, column);
      double y = skip_[of_head] * x;
      for (int64_t i = 0; i < heads_.state_dim; ++i) {
        double& s = state[static_cast<size_t>(i)];
        s = std::exp(rate_[of_head] * dt) * s + dt * x * xbc_.at(t, b + i);
        y += s * xbc_.at(t, b + heads_.keys() + i);
      }
      out.at(t, column) = static_cast<float>(y);
    }
  }

  const SsdHeads heads_;
  Rng rng_;
  TestMatrix xbc_, dt_;
  std::vector<float> rate_, dt_bias_, skip_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const SsdHeads& heads : kCases) {
    SCOPED_TRACE(testing::Message() << heads.heads << " of " << heads.head_dim);
    for (const auto& kernel : ssd_scan_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      ScanTest test(heads);
      TestMatrix dt = test.dt();
      TestMatrix out(ScanTest::kRows, heads.values());
      if (!kernel.supports(device.device().traits(), test.args(dt, {}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(SsdScan, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ScanTest& test) {
    TestStates states(1, test.heads().state_bytes());
    const StateSequence all{.row_count = ScanTest::kRows};
    TestMatrix dt = test.dt(), out(ScanTest::kRows, test.heads().values());
    OpContext context = device.context();
    kernel.run(context, test.args(dt, states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched() && dt.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 2e-5, 1e-5));
  });
}

// As the test of causal_conv with this name.
TEST(SsdScan, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ScanTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(ScanTest::kRows, test.heads().values(),
                                   test.heads().state_bytes(),
                                   [&](const StateView& states, TestMatrix& out) {
                                     TestMatrix dt = test.dt();
                                     kernel.run(context, test.args(dt, states, out));
                                   });
  });
}

// The instruction sets do the same operations in the same order; out may lie over x.
TEST(SsdScan, KernelsForInstructionSetsGiveTheSameBits) {
  for (const SsdHeads& heads : kCases) {
    std::vector<TestMatrix> results;
    TestDevice device = TestDevice::cpu(2);
    for (const auto& kernel : ssd_scan_kernels().all()) {
      ScanTest test(heads);
      TestMatrix dt = test.dt(), out(ScanTest::kRows, heads.values());
      TestStates states(1, heads.state_bytes());
      const StateSequence all{.row_count = ScanTest::kRows};
      SsdScanArgs args = test.args(dt, states.view({&all, 1}), out);
      const bool reference = kernel.name.ends_with("reference");
      if (reference || !kernel.supports(device.device().traits(), args)) continue;
      OpContext context = device.context();
      kernel.run(context, args);
      results.push_back(out);

      TestMatrix dt_again = test.dt();
      args.dt = dt_again.view();
      TestMatrix xbc(ScanTest::kRows, heads.xbc());
      for (int32_t t = 0; t < ScanTest::kRows; ++t) {
        std::copy_n(f32_row(args.xbc, t), heads.xbc(), &xbc.at(t, 0));
      }
      args.xbc = xbc.view();
      args.out = {xbc.view().data, DType::kF32, out.view().shape, xbc.view().row_stride};
      kernel.run(context, args);
      for (int32_t t = 0; t < ScanTest::kRows; ++t) {
        EXPECT_TRUE(same_bits(&xbc.at(t, 0), &out.at(t, 0), heads.values()));
      }
    }
    for (const TestMatrix& other : results) EXPECT_TRUE(same_bits(other, results.front()));
  }
}

}  // namespace
}  // namespace headrace::ssd_scan_test
