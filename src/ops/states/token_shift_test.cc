#include "ops/states/token_shift.h"

#include <gtest/gtest.h>

#include "ops/states/state_fixture.h"

namespace headrace::token_shift_test {
namespace {

constexpr int32_t kRows = 21, kMixes = 3;
constexpr int64_t kColumns = 37;
constexpr int64_t kBytes = token_shift_state_bytes(kColumns);

class ShiftTest {
 public:
  ShiftTest() : x_(rng_, kRows, kColumns), mix_(random_floats(rng_, kMixes * kColumns)) {}

  TokenShiftArgs args(const StateView& states, TestMatrix& out) {
    return {
        .x = x_.view(), .mix = mix_.data(), .mixes = kMixes, .states = states, .out = out.view()};
  }
  // Of one sequence of all rows, as it is written.
  TestMatrix expected() const {
    TestMatrix out(kRows, kMixes * kColumns);
    for (int32_t t = 0; t < kRows; ++t) {
      for (int64_t i = 0; i < kMixes * kColumns; ++i) {
        const double x = x_.at(t, i % kColumns);
        const double before = t == 0 ? 0.0 : x_.at(t - 1, i % kColumns);
        out.at(t, i) = static_cast<float>(x + (before - x) * mix_[static_cast<size_t>(i)]);
      }
    }
    return out;
  }

 private:
  Rng rng_{7};
  TestMatrix x_;
  std::vector<float> mix_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const auto& kernel : token_shift_kernels().all()) {
    SCOPED_TRACE(kernel.name);
    ShiftTest test;
    TestMatrix out(kRows, kMixes * kColumns);
    if (kernel.supports(device.device().traits(), test.args({}, out))) body(device, kernel, test);
  }
}

TEST(TokenShift, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ShiftTest& test) {
    TestStates states(1, kBytes);
    const StateSequence all{.row_count = kRows};
    TestMatrix out(kRows, kMixes * kColumns);
    OpContext context = device.context();
    kernel.run(context, test.args(states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 1e-6, 1e-6));
  });
}

// As the test of causal_conv with this name.
TEST(TokenShift, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, ShiftTest& test) {
    OpContext context = device.context();
    TestStates states(4, kBytes);
    const auto run = [&](std::span<const StateSequence> steps, TestMatrix& out) {
      for (const StateSequence& step : steps) {
        kernel.run(context, test.args(states.view({&step, 1}), out));
      }
    };
    TestMatrix whole(kRows, kMixes * kColumns);
    const StateCopy save{12, 2};
    const StateSequence all{.row_count = kRows, .entry = 0, .saves = {&save, 1}};
    run({&all, 1}, whole);

    TestMatrix cut(kRows, kMixes * kColumns);
    const StateSequence steps[] = {{0, 1, 0, 1, {}}, {1, 2, 1, 1, {}}, {3, 18, 3, 1, {}}};
    run(steps, cut);
    EXPECT_TRUE(same_bits(cut, whole));
    EXPECT_EQ(states.entry(1, kBytes), states.entry(0, kBytes));

    TestMatrix rest = whole;
    const StateSequence from_saved{12, kRows - 12, 12, 2, {}};
    run({&from_saved, 1}, rest);
    EXPECT_TRUE(same_bits(rest, whole));
    EXPECT_EQ(states.entry(2, kBytes), states.entry(0, kBytes));

    // The second of two begins with nothing before it.
    TestMatrix apart(kRows, kMixes * kColumns);
    const StateSequence two[] = {{0, 12, 0, 3, {}}, {12, kRows - 12, 0, 1, {}}};
    kernel.run(context, test.args(states.view(two), apart));
    EXPECT_TRUE(same_bits(&apart.at(11, 0), &whole.at(11, 0), whole.columns()));
    EXPECT_FALSE(same_bits(&apart.at(12, 0), &whole.at(12, 0), whole.columns()));
    EXPECT_TRUE(same_bits(&apart.at(13, 0), &whole.at(13, 0), whole.columns()));
  });
}

}  // namespace
}  // namespace headrace::token_shift_test
