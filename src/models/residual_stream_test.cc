#include "models/residual_stream.h"

#include <gtest/gtest.h>

#include "models/parts/part_fixture.h"

namespace headrace::residual_stream_test {
namespace {

constexpr int64_t kHidden = 16;
constexpr int64_t kRows = 6;
constexpr float kScale = 0.5f;

class ResidualStreams : public testing::TestWithParam<bool> {
 protected:
  LinearLayer square(const std::string& name) {
    auto layer = tensors_.matrix({.rows = {{name, kHidden}}, .columns = kHidden});
    EXPECT_TRUE(layer.ok());
    return std::move(layer).value();
  }
  NormWeights norm(NormKind kind, const std::string& name) {
    return pass_.norm(kind, name, tensors_);
  }
  // branch = W pre_norm(x), without bias.
  void run_part(ResidualStream& stream, const NormWeights& pre, const NormWeights& post,
                const LinearLayer& layer) {
    ResidualBranch branch(stream, pre, post);
    for (const auto& [first, count] : {std::pair<int64_t, int64_t>(0, 2), {2, kRows - 2}}) {
      ResidualBranch some = branch.range(first, count);
      TestMatrix y(count, kHidden, 0);
      some.multiply_input(layer, y.view());
      some.end_with(identity_, y.view());
    }
    branch.finish();
  }
  // The same in double: x + kScale * post(W pre(x)).
  Row added(const Row& x, const char* pre, const char* post, const char* layer) const {
    const auto weight = [&](const char* name) -> const std::vector<float>& {
      return tensors_.values(std::string(name) + ".weight");
    };
    Row y = times(weight(layer), pre == nullptr ? x : rms_normed(x, weight(pre), PartPass::kEps));
    if (post != nullptr) y = rms_normed(y, weight(post), PartPass::kEps);
    for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] + double{kScale} * y[i];
    return y;
  }
  TestMatrix some_rows() {
    Rng rng(5);
    return TestMatrix(rng, kRows, kHidden);
  }

  PartPass pass_{kRows, kHidden, GetParam()};
  MadeTensors tensors_{pass_.device()};
  LinearLayer identity_ = [this] {
    std::vector<float> one(kHidden * kHidden, 0.0f);
    for (size_t i = 0; i < kHidden; ++i) one[i * kHidden + i] = 1.0f;
    tensors_.set("one.weight", one);
    return square("one");
  }();
};

// Two parts: what the first leaves is added by the norm of the second, once, though it goes over
// ranges of rows; what that leaves is added by settle().
TEST_P(ResidualStreams, ABranchIsAddedOnceByWhatReadsNext) {
  for (const bool unfused : {false, true}) {
    for (const bool post : {false, true}) {
      SCOPED_TRACE(testing::Message() << unfused << post);
      const OpHooks hooks{.unfused = unfused};
      pass_.context().hooks = &hooks;
      const LinearLayer first = square("first"), second = square("second");
      const NormWeights pre = norm(NormKind::kRms, "pre"), none;
      const NormWeights behind = post ? norm(NormKind::kRms, "post") : NormWeights();
      TestMatrix x = some_rows();
      Rows expected = rows_of(x);
      for (Row& row : expected) {
        row = added(row, "pre", post ? "post" : nullptr, "first");
        row = added(row, nullptr, nullptr, "second");
        row = added(row, "pre", post ? "post" : nullptr, "first");
      }
      ResidualStream stream = pass_.stream(x, kScale);
      run_part(stream, pre, behind, first);
      run_part(stream, none, none, second);
      run_part(stream, pre, behind, first);
      stream.settle();
      EXPECT_TRUE(rows_close(x, expected));
      stream.settle();
      EXPECT_TRUE(rows_close(x, expected)) << "again";
      pass_.context().hooks = nullptr;
    }
  }
}

// A part may read its input as often as it likes before it ends.
TEST_P(ResidualStreams, ReadingTwiceAddsOnce) {
  const LinearLayer layer = square("layer");
  const NormWeights pre = norm(NormKind::kRms, "pre"), none;
  TestMatrix x = some_rows();
  Rows expected = rows_of(x);
  for (Row& row : expected)
    row = added(added(row, "pre", nullptr, "layer"), "pre", nullptr, "layer");
  ResidualStream stream = pass_.stream(x, kScale);
  run_part(stream, pre, none, layer);
  ResidualBranch branch(stream, pre, none);
  TestMatrix y(kRows, kHidden, 0), again = y;
  branch.multiply_input(layer, y.view());
  const ConstTensorView input = branch.input();
  multiply(pass_.context(), layer, input, again.view());
  EXPECT_TRUE(same_bits(again, y));
  branch.end_with(identity_, y.view());
  branch.finish();
  stream.settle();
  EXPECT_TRUE(rows_close(x, expected));
}

// Normalised rows are multiplied by what a gate makes of them, whichever way they are read.
TEST_P(ResidualStreams, ANormMayHaveAGate) {
  const LinearLayer layer = square("layer");
  NormWeights pre{.kind = NormKind::kRms, .eps = PartPass::kEps, .gate = {.rank = 5}};
  const NormWeights none;
  ASSERT_TRUE(tensors_.read_norm("pre", kHidden, pre).ok());
  TestMatrix x = some_rows();
  Rows expected = rows_of(x);
  for (Row& row : expected) {
    Row y = rms_normed(row, tensors_.values("pre.weight"), PartPass::kEps);
    Row low = times(tensors_.values("pre_gate.a.weight"), y);
    ASSERT_EQ(low.size(), 5u);
    for (double& value : low) value /= 1 + std::exp(-value);
    const Row gates = times(tensors_.values("pre_gate.b.weight"), low);
    for (size_t i = 0; i < y.size(); ++i) y[i] /= 1 + std::exp(-gates[i]);
    const Row branch = times(tensors_.values("layer.weight"), y);
    for (size_t i = 0; i < row.size(); ++i) row[i] += double{kScale} * branch[i];
  }
  ResidualStream stream = pass_.stream(x, kScale);
  run_part(stream, pre, none, layer);
  stream.settle();
  EXPECT_TRUE(rows_close(x, expected));
}

// What a part writes itself is a branch like a product.
TEST_P(ResidualStreams, ABranchMayEndWithRowsOfItsOwn) {
  const NormWeights none;
  TestMatrix x = some_rows();
  const TestMatrix before = x;
  ResidualStream stream = pass_.stream(x, kScale);
  ResidualBranch branch(stream, none, none);
  const TensorView rows = branch.end_with_rows();
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) f32_row(rows, t)[i] = static_cast<float>(t + i);
  }
  branch.finish();
  stream.settle();
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) {
      EXPECT_EQ(x.at(t, i), std::fma(static_cast<float>(t + i), kScale, before.at(t, i)));
    }
  }
}

// One that stays apart is added as it is left, whatever a device would have added on its way.
TEST_P(ResidualStreams, ABranchMayStayApartUntilItHasEnded) {
  const LinearLayer layer = square("layer");
  const NormWeights pre = norm(NormKind::kRms, "pre"), none;
  TestMatrix x = some_rows();
  Rows expected = rows_of(x);
  for (Row& row : expected) {
    const Row once = added(row, "pre", nullptr, "layer");
    for (size_t i = 0; i < row.size(); ++i) row[i] += 3 * (once[i] - row[i]);
  }
  ResidualStream stream = pass_.stream(x, kScale);
  ResidualBranch branch(stream, pre, none);
  branch.keep_apart();
  TestMatrix y(kRows, kHidden, 0);
  branch.multiply_input(layer, y.view());
  branch.end_with(identity_, y.view());
  const TensorView rows = branch.ended_rows();
  for (int64_t t = 0; t < kRows; ++t) {
    for (int64_t i = 0; i < kHidden; ++i) f32_row(rows, t)[i] *= 3.0f;
  }
  branch.finish();
  stream.settle();
  EXPECT_TRUE(rows_close(x, expected));
}

TEST_P(ResidualStreams, KeptRowsGoOnAlone) {
  const LinearLayer layer = square("layer");
  const NormWeights pre = norm(NormKind::kRms, "pre"), none;
  TestMatrix x = some_rows();
  Rows expected = {rows_of(x)[1], rows_of(x)[4]};
  for (Row& row : expected) row = added(row, "pre", nullptr, "layer");
  ResidualStream stream = pass_.stream(x, kScale);
  ResidualBranch branch(stream, pre, none);
  TestMatrix y(kRows, kHidden, 0), kept(2, kHidden, 0);
  branch.multiply_input(layer, y.view());
  const std::vector<int32_t> rows = {1, 4};
  branch.keep_rows(rows);
  EXPECT_EQ(branch.rows(), 2);
  for (int64_t i = 0; i < kHidden; ++i) {
    kept.at(0, i) = y.at(1, i);
    kept.at(1, i) = y.at(4, i);
  }
  branch.end_with(identity_, kept.view());
  branch.finish();
  stream.settle();
  EXPECT_TRUE(rows_close(PartPass::copy_of(stream.hidden()), expected));
}

INSTANTIATE_TEST_SUITE_P(Scratch, ResidualStreams, testing::Bool(),
                         [](const auto& info) { return info.param ? "Shared" : "Apart"; });

}  // namespace
}  // namespace headrace::residual_stream_test
