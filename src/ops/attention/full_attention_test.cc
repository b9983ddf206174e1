#include "ops/attention/full_attention.h"

#include <gtest/gtest.h>

#include "ops/op_fixture.h"

namespace headrace::full_attention_test {
namespace {

constexpr int32_t kReach = 40;

struct FullCase {
  int32_t heads, head_dim;
  std::vector<int32_t> lengths;  // of the sequences, one behind the other
  bool biased;
  int32_t window = 0;
};

class FullRows {
 public:
  explicit FullRows(const FullCase& c) : case_(c), rng_(1234) {
    int32_t first = 1;  // row 0 is nobody's
    for (const int32_t length : c.lengths) {
      sequences_.push_back({first, length});
      first += length;
    }
    const int64_t columns = int64_t{c.heads} * c.head_dim;
    q_ = std::make_unique<TestMatrix>(rng_, first, columns);
    k_ = std::make_unique<TestMatrix>(rng_, first, columns);
    v_ = std::make_unique<TestMatrix>(rng_, first, columns);
    if (c.biased) bias_ = random_floats(rng_, c.heads * (2 * kReach + 1), 2.0f);
  }

  FullAttentionArgs args(TestMatrix& out) {
    return {.q = q_->view(),
            .k = k_->view(),
            .v = v_->view(),
            .head_dim = case_.head_dim,
            .sequences = sequences_,
            .scale = 0.4f,
            .bias = bias_.empty() ? nullptr : bias_.data(),
            .bias_reach = kReach,
            .window = case_.window,
            .out = out.view()};
  }
  TestMatrix out() const { return TestMatrix(q_->rows(), q_->columns()); }
  std::vector<RowSequence>& sequences() { return sequences_; }

 private:
  const FullCase case_;
  Rng rng_;
  std::vector<RowSequence> sequences_;
  std::unique_ptr<TestMatrix> q_, k_, v_;
  std::vector<float> bias_;
};

const std::vector<FullCase>& full_cases() {
  static const std::vector<FullCase> cases = {
      {1, 4, {1}, false},          {2, 16, {3, 1, 18}, false},       {3, 20, {7, 33}, true},
      {12, 32, {16, 5, 40}, true}, {2, 64, {41, 0, 6}, true},        {2, 16, {40, 3, 17}, false, 1},
      {1, 8, {41, 16}, true, 5},   {2, 32, {39, 90, 33}, false, 16}, {1, 16, {130}, false, 40},
  };
  return cases;
}

// The reference is held to the formula where it can be seen: one row of equal scores is the mean.
TEST(FullAttention, OfEqualKeysIsTheMeanOfTheValues) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Rng rng(3);
  TestMatrix zeros(5, 8), values(rng, 5, 8), out(5, 8);
  for (int64_t t = 0; t < 5; ++t) {
    for (int64_t i = 0; i < 8; ++i) zeros.at(t, i) = 0.0f;
  }
  const std::vector<RowSequence> sequences = {{0, 2}, {2, 3}};
  for (const auto& kernel : full_attention_kernels().all()) {
    const FullAttentionArgs args{.q = zeros.view(),
                                 .k = zeros.view(),
                                 .v = values.view(),
                                 .head_dim = 4,
                                 .sequences = sequences,
                                 .scale = 1.0f,
                                 .out = out.view()};
    if (!kernel.supports(device.device().traits(), args)) continue;
    kernel.run(context, args);
    for (int64_t i = 0; i < 8; ++i) {
      EXPECT_NEAR(out.at(1, i), (values.at(0, i) + values.at(1, i)) / 2, 1e-6) << kernel.name;
      EXPECT_NEAR(out.at(2, i), (values.at(2, i) + values.at(3, i) + values.at(4, i)) / 3, 1e-6);
    }
  }
}

TEST(FullAttention, EveryKernelIsTheReference) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const FullCase& c : full_cases()) {
    FullRows rows(c);
    TestMatrix expected = rows.out();
    full_attention_kernels().all().back().run(context, rows.args(expected));
    for (const auto& kernel : full_attention_kernels().all()) {
      TestMatrix out = rows.out();
      if (!kernel.supports(device.device().traits(), rows.args(out))) continue;
      kernel.run(context, rows.args(out));
      SCOPED_TRACE(std::string(kernel.name) + " heads of " + std::to_string(c.head_dim));
      for (const RowSequence& sequence : rows.sequences()) {
        for (int64_t t = sequence.row_first; t < sequence.row_first + sequence.row_count; ++t) {
          for (int64_t i = 0; i < out.columns(); ++i) {
            ASSERT_NEAR(out.at(t, i), expected.at(t, i), 2e-6) << t << " " << i;
          }
        }
      }
      EXPECT_TRUE(out.gaps_untouched());
      EXPECT_TRUE(std::isnan(out.at(0, 0)));  // row 0 is in no sequence
    }
  }
}

// By the formula, too: of equal keys the mean of the values that are seen.
TEST(FullAttention, AWindowLeavesOutWhatIsFar) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  constexpr int64_t kRows = 75, kWindow = 7;
  Rng rng(5);
  TestMatrix zeros(kRows, 8), values(rng, kRows, 8), out(kRows, 8);
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < 8; ++i) zeros.at(t, i) = 0.0f;
  }
  const std::vector<RowSequence> sequences = {{0, kRows}};
  for (const auto& kernel : full_attention_kernels().all()) {
    const FullAttentionArgs args{.q = zeros.view(),
                                 .k = zeros.view(),
                                 .v = values.view(),
                                 .head_dim = 8,
                                 .sequences = sequences,
                                 .scale = 1.0f,
                                 .window = kWindow,
                                 .out = out.view()};
    if (!kernel.supports(device.device().traits(), args)) continue;
    kernel.run(context, args);
    for (int64_t t = 0; t < kRows; ++t) {
      const int64_t first = std::max<int64_t>(0, t - kWindow);
      const int64_t last = std::min<int64_t>(kRows - 1, t + kWindow);
      double sum = 0;
      for (int64_t j = first; j <= last; ++j) sum += values.at(j, 3);
      EXPECT_NEAR(out.at(t, 3), sum / static_cast<double>(last - first + 1), 2e-6) << kernel.name;
    }
  }
}

TEST(FullAttention, ASequenceHasTheSameBitsAloneAndAmongOthers) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  FullRows rows({.heads = 3, .head_dim = 20, .lengths = {9, 33, 2}, .biased = true});
  TestMatrix together = rows.out();
  full_attention(context, rows.args(together));
  const RowSequence second = rows.sequences()[1];
  rows.sequences() = {second};
  TestMatrix alone = rows.out();
  full_attention(context, rows.args(alone));
  for (int64_t t = second.row_first; t < second.row_first + second.row_count; ++t) {
    EXPECT_TRUE(same_bits(&alone.at(t, 0), &together.at(t, 0), alone.columns())) << t;
  }
}

}  // namespace
}  // namespace headrace::full_attention_test
