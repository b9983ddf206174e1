#include "ops/states/causal_conv.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::causal_conv_test {
namespace {

struct Case {
  int32_t taps = 3;
  int64_t channels = 40;
  bool before = false, behind = false, bias = false;
  ConvActivation activation = ConvActivation::kNone;
};

const Case kCases[] = {
    {.taps = 3, .channels = 40, .before = true, .behind = true},
    {.taps = 4, .channels = 600, .activation = ConvActivation::kSilu},
    {.taps = 2, .channels = 16, .bias = true},
    {.taps = 6, .channels = 7, .before = true, .bias = true},  // the reference alone
};

class ConvTest {
 public:
  static constexpr int32_t kRows = 37;

  explicit ConvTest(const Case& c)
      : case_(c),
        rng_(static_cast<uint64_t>(c.taps)),
        x_(rng_, kRows, c.channels),
        before_(rng_, kRows, c.channels),
        behind_(rng_, kRows, c.channels),
        weight_(random_floats(rng_, c.taps * c.channels)),
        bias_(random_floats(rng_, c.channels)) {}

  int64_t state_bytes() const { return causal_conv_state_bytes(case_.taps, case_.channels); }

  CausalConvArgs args(const StateView& states, TestMatrix& out) {
    return {.x = x_.view(),
            .before = case_.before ? before_.view() : TensorView(),
            .behind = case_.behind ? behind_.view() : TensorView(),
            .weight = weight_.data(),
            .bias = case_.bias ? bias_.data() : nullptr,
            .taps = case_.taps,
            .activation = case_.activation,
            .states = states,
            .out = out.view()};
  }

  // As it is written, of rows that are one sequence.
  TestMatrix expected() {
    TestMatrix out(kRows, case_.channels);
    for (int32_t t = 0; t < kRows; ++t) {
      for (int64_t c = 0; c < case_.channels; ++c) out.at(t, c) = value(t, c);
    }
    return out;
  }
  TestMatrix& x() { return x_; }

 private:
  float value(int32_t t, int64_t c) {
    double sum = case_.bias ? bias_[static_cast<size_t>(c)] : 0.0;
    for (int32_t j = 0; j < case_.taps; ++j) {
      const int32_t from = t - case_.taps + 1 + j;
      if (from < 0) continue;
      const double v = double{x_.at(from, c)} * (case_.before ? before_.at(from, c) : 1.0f);
      sum += weight_[static_cast<size_t>(j * case_.channels + c)] * v;
    }
    if (case_.activation == ConvActivation::kSilu) sum /= 1 + std::exp(-sum);
    return static_cast<float>(case_.behind ? sum * behind_.at(t, c) : sum);
  }

  const Case case_;
  Rng rng_;
  TestMatrix x_, before_, behind_;
  std::vector<float> weight_, bias_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const Case& c : kCases) {
    SCOPED_TRACE(testing::Message() << c.taps << " taps of " << c.channels);
    for (const auto& kernel : causal_conv_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      ConvTest test(c);
      TestMatrix out(1, c.channels);
      if (!kernel.supports(device.device().traits(), test.args({}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(CausalConv, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ConvTest& test) {
    TestStates states(1, test.state_bytes());
    const StateSequence all{.row_count = ConvTest::kRows};
    TestMatrix out(ConvTest::kRows, test.x().columns());
    OpContext context = device.context();
    kernel.run(context, test.args(states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 2e-6, 2e-6));
  });
}

// Two sequences a step, of which one began in the step before; in place; a state that was saved on
// the way is taken up by another entry.
TEST(CausalConv, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  constexpr int32_t kRows = ConvTest::kRows;
  for_each_kernel([](TestDevice& device, const auto& kernel, ConvTest& test) {
    OpContext context = device.context();
    TestStates states(4, test.state_bytes());
    TestMatrix whole(kRows, test.x().columns());
    const StateCopy save{20, 2};
    const StateSequence all{.row_count = kRows, .entry = 0, .saves = {&save, 1}};
    kernel.run(context, test.args(states.view({&all, 1}), whole));

    TestMatrix cut(kRows, test.x().columns());
    for (const StateSequence& step :
         {StateSequence{0, 1, 0, 1, {}}, StateSequence{1, 2, 1, 1, {}},
          StateSequence{3, 33, 3, 1, {}}, StateSequence{36, 1, 36, 1, {}}}) {
      kernel.run(context, test.args(states.view({&step, 1}), cut));
    }
    EXPECT_TRUE(same_bits(cut, whole));
    EXPECT_EQ(states.entry(1, test.state_bytes()), states.entry(0, test.state_bytes()));

    TestMatrix rest = whole;
    const StateSequence from_saved{20, kRows - 20, 20, 2, {}};
    kernel.run(context, test.args(states.view({&from_saved, 1}), rest));
    EXPECT_TRUE(same_bits(rest, whole));
    EXPECT_EQ(states.entry(2, test.state_bytes()), states.entry(0, test.state_bytes()));

    const StateSequence two[] = {{0, 12, 0, 3, {}}, {12, kRows - 12, 0, 1, {}}};
    TestMatrix apart(kRows, test.x().columns());
    kernel.run(context, test.args(states.view(two), apart));
    for (int32_t t = 0; t < 12; ++t) {
      EXPECT_TRUE(same_bits(&apart.at(t, 0), &whole.at(t, 0), whole.columns()));
    }
    EXPECT_FALSE(same_bits(apart, whole));

    CausalConvArgs in_place = test.args(states.view({&all, 1}), whole);
    in_place.out = test.x().view();
    kernel.run(context, in_place);
    EXPECT_TRUE(same_bits(test.x(), whole));
  });
}

}  // namespace
}  // namespace headrace::causal_conv_test
