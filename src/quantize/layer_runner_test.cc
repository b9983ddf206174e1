#include "quantize/layer_runner.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>

#include "models/made_model_fixture.h"
#include "quantize/input_statistics.h"

namespace headrace::layer_runner_test {
namespace {

constexpr int32_t kLength = 12, kSequences = 3;

// The same weights under the one architecture, for a whole model and for one that goes by layers.
class LayerRunnerTest : public testing::Test {
 protected:
  LayerRunnerTest() {
    std::vector<DummyTensor> tensors;
    for (const TensorSpec& tensor : architecture_.tensors(config_)) {
      tensors.push_back({.name = tensor.name, .shape = tensor.shape});
    }
    weights_ = DummyWeightSource::create(std::move(tensors), {.dtype = DType::kF32}).value();
    for (int32_t i = 0; i < kLength * kSequences; ++i) tokens_.push_back(i * 7 % config_.vocab);
  }

  // What a whole model has behind each layer for sequence `s`, [layers][kLength][D].
  std::vector<std::vector<std::vector<float>>> hidden_of(int32_t s) {
    const auto model = std::move(architecture_.load(config_, *weights_, *device_, {}).value());
    SequenceSession session(*device_, *model, kLength, {KvFormat::kF16});
    const auto first = tokens_.begin() + s * kLength;
    return session.run({first, first + kLength}, {kLength}).hidden;
  }

  const ModelConfig config_ = tiny_config();
  const Architecture& architecture_ = **find_architecture("llama");
  const std::unique_ptr<Device> device_ = create_cpu_device(2);
  std::unique_ptr<WeightSource> weights_;
  std::vector<TokenId> tokens_;
};

// The inputs of a layer's first products are its norm of what the layers before have left.
class FirstInputs final : public LayerInputs {
 public:
  Status begin(std::span<const MatrixStack> sites) override {
    for (const MatrixStack& site : sites) names.push_back(site.rows.front().name);
    rows.resize(sites.size());
    return ok_status();
  }
  void add(int32_t site, const ConstTensorView& x) override {
    for (int64_t r = 0; r < x.rows(); ++r) {
      rows[static_cast<size_t>(site)].emplace_back(f32_row(x, r), f32_row(x, r) + x.columns());
    }
  }
  std::vector<std::string> names;
  std::vector<std::vector<std::vector<float>>> rows;  // [sites][rows][K]
};

TEST_F(LayerRunnerTest, GoesThroughLayersAsAWholeModelDoes) {
  LayerRunner runner(*device_, config_, architecture_, tokens_, kLength);
  ASSERT_TRUE(runner.embed(*weights_).ok());
  ASSERT_TRUE(runner.advance(0, *weights_).ok());
  for (int32_t s = 0; s < kSequences; ++s) {
    const auto whole = hidden_of(s);
    for (int32_t t = 0; t < kLength; ++t) {
      const float* const row = runner.hidden().row(s * kLength + t);
      EXPECT_TRUE(std::equal(row, row + config_.hidden, whole[0][static_cast<size_t>(t)].begin()))
          << s << " " << t;
    }
  }
  ASSERT_TRUE(runner.advance(1, *weights_).ok());
  const auto last = hidden_of(kSequences - 1);
  const float* const row = runner.hidden().row(kSequences * kLength - 1);
  EXPECT_TRUE(std::equal(row, row + config_.hidden, last[1].back().begin()));
}

TEST_F(LayerRunnerTest, ShowsWhatEachMatrixMultiplies) {
  LayerRunner runner(*device_, config_, architecture_, tokens_, kLength);
  ASSERT_TRUE(runner.embed(*weights_).ok());
  ASSERT_TRUE(runner.advance(0, *weights_).ok());
  const std::vector<float> before(runner.hidden().values().begin(), runner.hidden().values().end());
  FirstInputs inputs;
  ASSERT_TRUE(runner.observe(1, *weights_, inputs).ok());
  EXPECT_EQ(inputs.names, (std::vector<std::string>{"blk.1.attn_q", "blk.1.attn_output",
                                                    "blk.1.ffn_gate", "blk.1.ffn_down"}));
  for (const auto& rows : inputs.rows) {
    EXPECT_EQ(std::ssize(rows), int64_t{kLength} * kSequences);
  }
  EXPECT_EQ(inputs.rows[3].front().size(), static_cast<size_t>(config_.ffn));
  // The texts have not moved.
  EXPECT_TRUE(std::ranges::equal(before, runner.hidden().values()));
  // What the first product saw: x / rms(x) times the norm's weight.
  const auto norm = weights_->get("blk.1.attn_norm.weight").value();
  const auto width = static_cast<size_t>(config_.hidden);
  for (size_t r = 0; r < inputs.rows[0].size(); r += 5) {
    const float* const x = before.data() + r * width;
    double squares = 0;
    for (size_t c = 0; c < width; ++c) squares += double{x[c]} * double{x[c]};
    const double scale =
        1 / std::sqrt(squares / static_cast<double>(width) + double{config_.rms_eps});
    for (size_t c = 0; c < width; ++c) {
      const double wanted = double{x[c]} * scale * double{f32_row(norm, 0)[c]};
      EXPECT_NEAR(inputs.rows[0][r][c], wanted, 1e-4 * (1 + std::fabs(wanted)));
    }
  }
}

TEST_F(LayerRunnerTest, StatisticsAreSumsOverAllRows) {
  LayerRunner runner(*device_, config_, architecture_, tokens_, kLength);
  ASSERT_TRUE(runner.embed(*weights_).ok());
  FirstInputs inputs;
  ASSERT_TRUE(runner.observe(0, *weights_, inputs).ok());
  MatrixMath math(*device_);
  InputCollector collector(math, /*with_products=*/true);
  ASSERT_TRUE(runner.observe(0, *weights_, collector).ok());
  const auto sites = collector.finish();
  ASSERT_TRUE(sites.ok());
  ASSERT_EQ(sites->size(), 4u);
  EXPECT_EQ((*sites)[0].matrices,
            (std::vector<std::string>{"blk.0.attn_q.weight", "blk.0.attn_k.weight",
                                      "blk.0.attn_v.weight"}));
  for (size_t s = 0; s < 4; ++s) {
    const InputStatistics& site = (*sites)[s];
    EXPECT_EQ(site.rows, std::ssize(inputs.rows[s]));
    const auto columns = static_cast<size_t>(site.columns());
    double largest = 0;
    for (int64_t c = 0; c < site.columns(); ++c) {
      largest = std::max(largest, double{site.h.row(c)[c]});
    }
    for (size_t a = 0; a < columns; a += 3) {
      double magnitude = 0, square = 0, product = 0;
      const size_t b = (a * 5 + 1) % columns;
      for (const auto& row : inputs.rows[s]) {
        magnitude += std::fabs(double{row[a]});
        square += double{row[a]} * double{row[a]};
        product += double{row[a]} * double{row[b]};
      }
      EXPECT_NEAR(site.magnitudes[a], magnitude, 1e-9 * (1 + magnitude));
      EXPECT_NEAR(site.squares[a], square, 1e-9 * (1 + square));
      const auto i = static_cast<int64_t>(a), j = static_cast<int64_t>(b);
      EXPECT_NEAR(site.h.row(i)[j], product, 0.01 * largest);
      EXPECT_EQ(site.h.row(i)[j], site.h.row(j)[i]);
    }
  }
}

}  // namespace
}  // namespace headrace::layer_runner_test
