#include "ops/states/delta_rule.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::delta_rule_test {
namespace {

const DeltaHeads kCases[] = {
    {.key_heads = 2, .value_heads = 4, .key_dim = 16, .value_dim = 32},
    {.key_heads = 1, .value_heads = 1, .key_dim = 24, .value_dim = 40},
    {.key_heads = 2, .value_heads = 2, .key_dim = 8, .value_dim = 12},
    {.key_heads = 1, .value_heads = 3, .key_dim = 128, .value_dim = 128},
    {.key_heads = 2, .value_heads = 6, .key_dim = 16, .value_dim = 32, .tiled = true},
};

class DeltaTest {
 public:
  static constexpr int32_t kRows = 37;
  static constexpr float kEps = 1e-6f;

  explicit DeltaTest(const DeltaHeads& heads)
      : heads_(heads),
        rng_(static_cast<uint64_t>(heads.key_dim)),
        qkv_(rng_, kRows, heads.qkv()),
        gates_(rng_, kRows, 2 * heads.value_heads),
        z_(rng_, kRows, heads.values()),
        rate_(random_floats(rng_, heads.value_heads)),
        dt_bias_(random_floats(rng_, heads.value_heads)),
        norm_(random_floats(rng_, heads.value_dim)) {
    for (float& rate : rate_) rate = -std::exp(rate);
  }

  const DeltaHeads& heads() const { return heads_; }
  // The op leaves other numbers in the place of what it has read.
  struct Read {
    TestMatrix qkv, gates;
  };
  Read inputs() const { return {qkv_, gates_}; }
  DeltaRuleArgs args(Read& read, const StateView& states, TestMatrix& out) {
    return {.heads = heads_,
            .qkv = read.qkv.view(),
            .gates = read.gates.view(),
            .z = z_.view(),
            .rate = rate_.data(),
            .dt_bias = dt_bias_.data(),
            .norm = norm_.data(),
            .norm_eps = kEps,
            .sigmoid_gates = sigmoid_gates_,
            .beta_scale = beta_scale_,
            .states = states,
            .out = out.view()};
  }

  void double_rates() { beta_scale_ = 2; }
  void gate_by_sigmoids() { sigmoid_gates_ = true; }

  // As it is written, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, heads_.values());
    for (int32_t head = 0; head < heads_.value_heads; ++head) run_head(head, out);
    return out;
  }

 private:
  std::vector<double> normalised(int32_t t, int64_t first, double scale) const {
    std::vector<double> x;
    double squares = 1e-6;
    for (int64_t i = 0; i < heads_.key_dim; ++i) {
      x.push_back(qkv_.at(t, first + i));
      squares += x.back() * x.back();
    }
    for (double& value : x) value *= scale / std::sqrt(squares);
    return x;
  }

  void run_head(int32_t head, TestMatrix& out) const {
    const auto dk = static_cast<size_t>(heads_.key_dim), dv = static_cast<size_t>(heads_.value_dim);
    const int32_t of_key = heads_.value_heads / heads_.key_heads;
    const int64_t key =
        int64_t{heads_.tiled ? head % heads_.key_heads : head / of_key} * heads_.key_dim;
    std::vector<double> state(dk * dv);
    for (int32_t t = 0; t < kRows; ++t) {
      const auto q = normalised(t, key, 1 / std::sqrt(static_cast<double>(dk)));
      const auto k = normalised(t, heads_.keys() + key, 1);
      const double beta = double{beta_scale_} / (1 + std::exp(-double{gates_.at(t, head)}));
      const double a =
          double{gates_.at(t, heads_.value_heads + head)} + dt_bias_[static_cast<size_t>(head)];
      const double decay = std::exp(rate_[static_cast<size_t>(head)] * std::log1p(std::exp(a)));
      for (double& s : state) s *= decay;
      std::vector<double> o(dv);
      for (size_t j = 0; j < dv; ++j) {
        double read = 0;
        for (size_t i = 0; i < dk; ++i) read += state[i * dv + j] * k[i];
        const int64_t v = 2 * heads_.keys() + head * heads_.value_dim + static_cast<int64_t>(j);
        const double delta = beta * (qkv_.at(t, v) - read);
        for (size_t i = 0; i < dk; ++i) {
          state[i * dv + j] += k[i] * delta;
          o[j] += state[i * dv + j] * q[i];
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
      const int64_t at = head * heads_.value_dim + static_cast<int64_t>(j);
      const double z = z_.at(t, at);
      const double above = sigmoid_gates_ ? 1 : z;
      out.at(t, at) = static_cast<float>(o[j] / rms * norm_[j] * above / (1 + std::exp(-z)));
    }
  }

  const DeltaHeads heads_;
  float beta_scale_ = 1;
  bool sigmoid_gates_ = false;
  Rng rng_;
  TestMatrix qkv_, gates_, z_;
  std::vector<float> rate_, dt_bias_, norm_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const DeltaHeads& heads : kCases) {
    SCOPED_TRACE(testing::Message() << heads.value_heads << " of " << heads.key_dim);
    for (const auto& kernel : delta_rule_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      DeltaTest test(heads);
      DeltaTest::Read read = test.inputs();
      TestMatrix out(DeltaTest::kRows, heads.values());
      if (!kernel.supports(device.device().traits(), test.args(read, {}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(DeltaRule, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, DeltaTest& test) {
    TestStates states(1, test.heads().state_bytes());
    const StateSequence all{.row_count = DeltaTest::kRows};
    DeltaTest::Read read = test.inputs();
    TestMatrix out(DeltaTest::kRows, test.heads().values());
    OpContext context = device.context();
    kernel.run(context, test.args(read, states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(read.qkv.gaps_untouched() && read.gates.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 1e-5, 1e-5));
  });
}

TEST(DeltaRule, RatesOfLearningMayBeDoubledAndGatesBeSigmoids) {
  for_each_kernel([](TestDevice& device, const auto& kernel, DeltaTest& test) {
    test.double_rates();
    test.gate_by_sigmoids();
    TestStates states(1, test.heads().state_bytes());
    const StateSequence all{.row_count = DeltaTest::kRows};
    DeltaTest::Read read = test.inputs();
    TestMatrix out(DeltaTest::kRows, test.heads().values());
    OpContext context = device.context();
    kernel.run(context, test.args(read, states.view({&all, 1}), out));
    EXPECT_TRUE(all_close(out, test.expected(), 1e-5, 1e-5));
  });
}

// As the test of causal_conv with this name.
TEST(DeltaRule, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, DeltaTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(DeltaTest::kRows, test.heads().values(),
                                   test.heads().state_bytes(),
                                   [&](const StateView& states, TestMatrix& out) {
                                     DeltaTest::Read read = test.inputs();
                                     kernel.run(context, test.args(read, states, out));
                                   });
  });
}

// The instruction sets do the same operations in the same order.
TEST(DeltaRule, KernelsForInstructionSetsGiveTheSameBits) {
  for (const DeltaHeads& heads : kCases) {
    std::vector<TestMatrix> results;
    TestDevice device = TestDevice::cpu(2);
    for (const auto& kernel : delta_rule_kernels().all()) {
      DeltaTest test(heads);
      DeltaTest::Read read = test.inputs();
      TestStates states(1, heads.state_bytes());
      const StateSequence all{.row_count = DeltaTest::kRows};
      TestMatrix out(DeltaTest::kRows, heads.values());
      const DeltaRuleArgs args = test.args(read, states.view({&all, 1}), out);
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
}  // namespace headrace::delta_rule_test
