#include "ops/states/kimi_delta.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::kimi_delta_test {
namespace {

const KimiDeltaHeads kCases[] = {{.count = 2, .dim = 32},
                                 {.count = 1, .dim = 40},
                                 {.count = 3, .dim = 12},
                                 {.count = 1, .dim = 128}};

class KimiTest {
 public:
  static constexpr int32_t kRows = 37;
  static constexpr float kEps = 1e-6f;

  explicit KimiTest(const KimiDeltaHeads& heads, float floor = 0)
      : heads_(heads),
        floor_(floor),
        rng_(static_cast<uint64_t>(heads.dim)),
        qkv_(rng_, kRows, 3 * heads.columns()),
        forget_(rng_, kRows, heads.columns()),
        beta_(rng_, kRows, heads.count),
        z_(rng_, kRows, heads.columns()),
        rate_(random_floats(rng_, heads.count)),
        dt_bias_(random_floats(rng_, heads.columns())),
        norm_(random_floats(rng_, heads.dim)) {
    for (float& rate : rate_) rate = -std::exp(rate - 2.0f);
  }

  const KimiDeltaHeads& heads() const { return heads_; }
  // The op leaves other numbers in the place of what it has read.
  struct Read {
    TestMatrix qkv, forget, beta;
  };
  Read inputs() const { return {qkv_, forget_, beta_}; }
  KimiDeltaArgs args(Read& read, const StateView& states, TestMatrix& out) {
    return {.heads = heads_,
            .qkv = read.qkv.view(),
            .forget = read.forget.view(),
            .beta = read.beta.view(),
            .z = z_.view(),
            .rate = rate_.data(),
            .dt_bias = dt_bias_.data(),
            .norm = norm_.data(),
            .norm_eps = kEps,
            .decay_floor = floor_,
            .states = states,
            .out = out.view()};
  }

  // As it is written, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, heads_.columns());
    for (int32_t head = 0; head < heads_.count; ++head) run_head(head, out);
    return out;
  }

 private:
  std::vector<double> normalised(int32_t t, int64_t first, double scale) const {
    std::vector<double> x;
    double squares = 1e-6;
    for (int64_t i = 0; i < heads_.dim; ++i) {
      x.push_back(qkv_.at(t, first + i));
      squares += x.back() * x.back();
    }
    for (double& value : x) value *= scale / std::sqrt(squares);
    return x;
  }

  void run_head(int32_t head, TestMatrix& out) const {
    const auto dim = static_cast<size_t>(heads_.dim);
    const int64_t first = int64_t{head} * heads_.dim;
    std::vector<double> state(dim * dim);
    for (int32_t t = 0; t < kRows; ++t) {
      const auto q = normalised(t, first, 1 / std::sqrt(static_cast<double>(dim)));
      const auto k = normalised(t, heads_.columns() + first, 1);
      const double beta = 1 / (1 + std::exp(-double{beta_.at(t, head)}));
      for (size_t i = 0; i < dim; ++i) {
        const auto at = static_cast<int64_t>(i) + first;
        const double f = double{forget_.at(t, at)} + dt_bias_[static_cast<size_t>(at)];
        const double rate = rate_[static_cast<size_t>(head)];
        const double decay = std::exp(floor_ < 0 ? floor_ / (1 + std::exp(rate * f))
                                                 : rate * std::log1p(std::exp(f)));
        for (size_t j = 0; j < dim; ++j) state[i * dim + j] *= decay;
      }
      std::vector<double> o(dim);
      for (size_t j = 0; j < dim; ++j) {
        double read = 0;
        for (size_t i = 0; i < dim; ++i) read += state[i * dim + j] * k[i];
        const int64_t v = 2 * heads_.columns() + first + static_cast<int64_t>(j);
        const double delta = beta * (qkv_.at(t, v) - read);
        for (size_t i = 0; i < dim; ++i) {
          state[i * dim + j] += k[i] * delta;
          o[j] += state[i * dim + j] * q[i];
        }
      }
      write_row(head, t, o, out);
    }
  }

  void write_row(int32_t head, int32_t t, const std::vector<double>& o, TestMatrix& out) const {
    double squares = 0;
    for (const double value : o) squares += value * value;
    const double rms = std::sqrt(squares / static_cast<double>(o.size()) + kEps);
    for (size_t j = 0; j < o.size(); ++j) {
      const int64_t at = int64_t{head} * heads_.dim + static_cast<int64_t>(j);
      out.at(t, at) =
          static_cast<float>(o[j] / rms * norm_[j] / (1 + std::exp(-double{z_.at(t, at)})));
    }
  }

  const KimiDeltaHeads heads_;
  const float floor_;
  Rng rng_;
  TestMatrix qkv_, forget_, beta_, z_;
  std::vector<float> rate_, dt_bias_, norm_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (size_t i = 0; i < std::size(kCases); ++i) {
    const KimiDeltaHeads& heads = kCases[i];
    SCOPED_TRACE(testing::Message() << heads.count << " of " << heads.dim);
    for (const auto& kernel : kimi_delta_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      KimiTest test(heads, i % 2 == 0 ? 0.0f : -3.0f);
      KimiTest::Read read = test.inputs();
      TestMatrix out(KimiTest::kRows, heads.columns());
      if (!kernel.supports(device.device().traits(), test.args(read, {}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(KimiDelta, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, KimiTest& test) {
    TestStates states(1, test.heads().state_bytes());
    const StateSequence all{.row_count = KimiTest::kRows};
    KimiTest::Read read = test.inputs();
    TestMatrix out(KimiTest::kRows, test.heads().columns());
    OpContext context = device.context();
    kernel.run(context, test.args(read, states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(read.qkv.gaps_untouched() && read.forget.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 1e-5, 1e-5));
  });
}

// As the test of causal_conv with this name.
TEST(KimiDelta, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, KimiTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(KimiTest::kRows, test.heads().columns(),
                                   test.heads().state_bytes(),
                                   [&](const StateView& states, TestMatrix& out) {
                                     KimiTest::Read read = test.inputs();
                                     kernel.run(context, test.args(read, states, out));
                                   });
  });
}

// The instruction sets do the same operations in the same order.
TEST(KimiDelta, KernelsForInstructionSetsGiveTheSameBits) {
  for (const KimiDeltaHeads& heads : kCases) {
    std::vector<TestMatrix> results;
    TestDevice device = TestDevice::cpu(2);
    for (const auto& kernel : kimi_delta_kernels().all()) {
      KimiTest test(heads);
      KimiTest::Read read = test.inputs();
      TestStates states(1, heads.state_bytes());
      const StateSequence all{.row_count = KimiTest::kRows};
      TestMatrix out(KimiTest::kRows, heads.columns());
      const KimiDeltaArgs args = test.args(read, states.view({&all, 1}), out);
      const bool reference = kernel.name.ends_with("reference");
      if (reference || !kernel.supports(device.device().traits(), args)) continue;
      OpContext context = device.context();
      kernel.run(context, args);
      results.push_back(out);
    }
    for (const TestMatrix& other : results) EXPECT_TRUE(same_bits(other, results.front()));
  }
}

}  // namespace
}  // namespace headrace::kimi_delta_test
