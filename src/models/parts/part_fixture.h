// For the tests of parts: made-up tensors, rows through one part as a pass sends them, a cache of
// one layer, and the arithmetic of references in double.
#pragma once

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstring>
#include <deque>
#include <map>
#include <optional>
#include <string>
#include <vector>

#include "models/parts/layer_part.h"
#include "ops/op_fixture.h"

namespace headrace {

using Row = std::vector<double>;
using Rows = std::vector<Row>;

inline Row times(const std::vector<float>& matrix, const Row& x) {
  Row y(matrix.size() / x.size(), 0.0);
  for (size_t r = 0; r < y.size(); ++r) {
    for (size_t c = 0; c < x.size(); ++c) y[r] += double{matrix[r * x.size() + c]} * x[c];
  }
  return y;
}

inline Row rms_normed(const Row& x, const std::vector<float>& weight, double eps) {
  double squares = 0;
  for (const double v : x) squares += v * v;
  const double scale = 1.0 / std::sqrt(squares / static_cast<double>(x.size()) + eps);
  Row y(x.size());
  for (size_t i = 0; i < x.size(); ++i) y[i] = x[i] * scale * weight[i];
  return y;
}

inline Rows rows_of(const TestMatrix& matrix) {
  Rows rows;
  for (int64_t t = 0; t < matrix.rows(); ++t) {
    Row& row = rows.emplace_back();
    for (int64_t i = 0; i < matrix.columns(); ++i) row.push_back(matrix.at(t, i));
  }
  return rows;
}

// Every element within `error` of the largest of its row.
inline testing::AssertionResult rows_close(const TestMatrix& matrix, const Rows& expected,
                                           double error = 1e-5) {
  for (int64_t t = 0; t < matrix.rows(); ++t) {
    const Row& row = expected[static_cast<size_t>(t)];
    double largest = 0;
    for (const double v : row) largest = std::max(largest, std::abs(v));
    for (int64_t i = 0; i < matrix.columns(); ++i) {
      if (std::abs(matrix.at(t, i) - row[static_cast<size_t>(i)]) <= error * largest) continue;
      return testing::AssertionFailure() << "[" << t << ", " << i << "]: " << matrix.at(t, i)
                                         << " instead of " << row[static_cast<size_t>(i)];
    }
  }
  return testing::AssertionSuccess();
}

// Random tensors of whatever shape is asked for, in f32.
class MadeTensors final : public LayerTensors {
 public:
  explicit MadeTensors(Device& device) : device_(device) {}
  bool on_gpu() const override { return as_on_gpu_; }
  // From here on parts ask for what they would on a GPU.
  void pose_as_gpu() { as_on_gpu_ = true; }

  Result<LinearLayer> matrix(const MatrixStack& stack) override {
    std::vector<LinearSource> sources;
    std::vector<float> bias;
    for (const MatrixStack::Rows& rows : stack.rows) {
      const int64_t columns = stack.columns_in_file(), size = rows.in_file() * columns;
      const std::vector<float>& all = make(rows.name + ".weight", std::max(rows.experts, 1) * size);
      const float* const weight =
          all.data() + rows.expert * size + rows.first * columns + stack.first_column;
      sources.push_back({.weight = ConstTensorView(reinterpret_cast<const std::byte*>(weight),
                                                   DType::kF32, Shape{rows.count, stack.columns},
                                                   columns * int64_t{sizeof(float)}),
                         .row_order = rows.order});
      if (!stack.bias) continue;
      if (rows.bare) {
        bias.insert(bias.end(), static_cast<size_t>(rows.count), 0.0f);
        continue;
      }
      const std::vector<float>& values =
          make(rows.name + ".bias", std::max(rows.experts, 1) * rows.in_file());
      const auto first = static_cast<size_t>(rows.expert * rows.in_file() + rows.first);
      for (size_t r = 0; r < static_cast<size_t>(rows.count); ++r) {
        bias.push_back(
            values[first + (rows.order.empty() ? r : static_cast<size_t>(rows.order[r]))]);
      }
    }
    LinearLayer layer;
    HR_ASSIGN_OR_RETURN(layer.weight,
                        LinearWeight::pack(device_, sources, LinearCompute::kFloat32));
    if (stack.bias) {
      HR_ASSIGN_OR_RETURN(layer.bias, DeviceVector::upload(device_, bias));
    }
    return layer;
  }
  Result<DeviceVector> vector(const std::string& name, int64_t count) override {
    return DeviceVector::upload(device_, make(name, count));
  }

  Result<std::vector<float>> values(const std::string& name, const Shape& shape) override {
    return make(name, shape.elements().value());
  }

  Result<ConstTensorView> table(const std::string& name, const Shape& shape) override {
    const std::vector<float>& rows = make(name, shape.elements().value());
    return ConstTensorView(reinterpret_cast<const std::byte*>(rows.data()), DType::kF32, shape);
  }

  Result<DeviceVector> constant(int64_t count, float value) override {
    return DeviceVector::upload(device_, std::vector<float>(static_cast<size_t>(count), value));
  }
  Result<DeviceVector> made_vector(std::span<const float> values) override {
    return DeviceVector::upload(device_, values);
  }
  Result<LinearLayer> made(const Shape& shape, std::span<const float> values) override {
    const LinearSource source{
        .weight =
            ConstTensorView(reinterpret_cast<const std::byte*>(values.data()), DType::kF32, shape),
        .row_order = {}};
    LinearLayer layer;
    HR_ASSIGN_OR_RETURN(
        layer.weight, LinearWeight::pack(device_, std::span(&source, 1), LinearCompute::kFloat32));
    return layer;
  }

  // What is there already is taken, not made: for files that hold the same values otherwise.
  void set(const std::string& name, std::vector<float> values) {
    values_[name] = std::move(values);
  }
  const std::vector<float>& values(const std::string& name) const { return values_.at(name); }
  // In the order in which they were first asked for.
  const std::vector<std::string>& names() const { return names_; }

 private:
  const std::vector<float>& make(const std::string& name, int64_t count) {
    if (std::ranges::find(names_, name) == names_.end()) names_.push_back(name);
    std::vector<float>& values = values_[name];
    if (values.empty()) values = random_floats(rng_, count, 0.3f);
    EXPECT_EQ(static_cast<int64_t>(values.size()), count) << name;
    return values;
  }

  Device& device_;
  bool as_on_gpu_ = false;
  Rng rng_{11};
  std::map<std::string, std::vector<float>> values_;
  std::vector<std::string> names_;
};

// The cache of one layer and one sequence, every byte NaN until it is written, and the views that a
// mixer's run has of it.
class PartCache {
 public:
  static constexpr int32_t kBlockTokens = 16;

  PartCache(Device& device, const Mixer& part, int32_t length_max)
      : PartCache(device, part.kept(), length_max, part.state_bytes()) {}
  PartCache(Device& device, const LayerKv& kept, int32_t length_max, int64_t state_bytes = 0)
      : blocks_((length_max + kBlockTokens - 1) / kBlockTokens) {
    kv_ = kv_view(kept, {KvFormat::kF32}, KeyLayout::kTransposed, kBlockTokens);
    kv_.block_stride = layer_part_bytes(kv_);
    memory_ = std::move(device.allocate(std::max<int64_t>(kv_.block_stride * blocks_, 1)).value());
    std::memset(memory_.data(), 0xff, static_cast<size_t>(memory_.size()));
    kv_.base = memory_.data();
    state_ = std::move(device.allocate(std::max<int64_t>(state_bytes, 1)).value());
    std::memset(state_.data(), 0xff, static_cast<size_t>(state_.size()));
    // From the last block to the first: a table is no identity.
    for (int32_t b = blocks_; b-- > 0;) table_.push_back(b);
  }

  // Rows of positions [first, first + count).
  const ForwardBatch::Group& step(int32_t first, int32_t count) {
    slots_.clear();
    for (int32_t p = first; p < first + count; ++p) {
      slots_.push_back(int64_t{table_[static_cast<size_t>(p / kBlockTokens)]} * kBlockTokens +
                       p % kBlockTokens);
    }
    sequence_ = sequence(count, first + count);
    group_ = {.slots = slots_, .sequences = {&sequence_, 1}};
    return group_;
  }
  // The last `rows` of them are read behind the layer.
  const ForwardBatch::KeptRows& keep(int32_t rows) {
    kept_rows_.clear();
    for (int32_t r = sequence_.row_count - rows; r < sequence_.row_count; ++r) {
      kept_rows_.push_back(r);
    }
    kept_sequence_ = sequence(rows, sequence_.kv_length);
    kept_ = {.rows = kept_rows_,
             .group = {.slots = {}, .sequences = {&kept_sequence_, rows > 0 ? size_t{1} : 0}}};
    return kept_;
  }

  const KvLayerView& view() const { return kv_; }
  // Of the step's sequence.
  StateView states() {
    state_sequence_ = {.row_count = sequence_.row_count,
                       .position = sequence_.kv_length - sequence_.row_count};
    return {state_.data(), state_.size(), {&state_sequence_, 1}};
  }
  bool same_bits(const PartCache& other) const {
    return std::memcmp(memory_.data(), other.memory_.data(), static_cast<size_t>(memory_.size())) ==
           0;
  }

 private:
  AttentionSequence sequence(int32_t rows, int32_t length) const {
    return {.row_first = 0, .row_count = rows, .kv_length = length, .block_table = table_.data()};
  }

  const int32_t blocks_;
  Buffer memory_;
  Buffer state_;
  StateSequence state_sequence_;
  KvLayerView kv_;
  std::vector<int32_t> table_;
  std::vector<int64_t> slots_;
  AttentionSequence sequence_, kept_sequence_;
  std::vector<int32_t> kept_rows_;
  ForwardBatch::Group group_;
  ForwardBatch::KeptRows kept_;
};

// A CPU with the scratch memory of a pass over T rows of D columns: in_place as decoder.cc shares
// it on a CPU, else all apart.
class PartPass {
 public:
  PartPass(int64_t rows, int64_t hidden, bool in_place)
      : in_place_(in_place), hidden_(hidden), normed_(rows, hidden, 0), branch_(rows, hidden, 0) {}

  OpContext& context() { return context_; }
  Device& device() { return device_.device(); }
  NormWeights norm(NormKind kind, const std::string& name, MadeTensors& tensors) const {
    NormWeights norm{.kind = kind, .eps = kEps, .weight = {}, .bias = {}};
    EXPECT_TRUE(tensors.read_norm(name, hidden_, norm).ok());
    return norm;
  }
  ResidualStream stream(TestMatrix& x, float scale = 1.0f) {
    const TensorView normed = normed_.view();
    return {context_, {x.view(), normed, in_place_ ? normed : branch_.view()}, scale};
  }
  // The areas that the part asks for, [rows, columns] each, full of NaN.
  PartScratch scratch(const LayerPart& part, int64_t rows) {
    matrices_.clear();
    areas_.clear();
    for (const int64_t columns : part.scratch_columns(in_place_)) {
      areas_.push_back(matrices_.emplace_back(rows, columns, 0).view());
    }
    return {areas_, in_place_};
  }

  // x := x + part(x). `carried`: of frames, or no data.
  void run(const FeedForward& part, TestMatrix& x, const ConstTensorView& carried = {}) {
    ResidualStream residuals = stream(x);
    const NormWeights none;
    ResidualBranch branch(residuals, none, none);
    part.run({.branch = branch, .scratch = scratch(part, x.rows()), .carried = carried});
    branch.finish();
    residuals.settle();
  }

  // What a step asks of a mixer.
  struct Step {
    int32_t first = 0;                        // position of its first row
    std::span<const RopeAngles> angles = {};  // [rope tables]
    std::optional<int32_t> read_last = {};    // empty: all rows are read behind it
    TensorView carried = {};                  // [T, carried_columns()]
    TensorView frames = {};                   // [T, columns of frames]
    PartCache* beside = nullptr;              // of Mixer::pages_beside()
  };
  // The rows of x + part(x) that are read.
  TestMatrix run(const Mixer& part, PartCache& cache, TestMatrix x, const Step& step) {
    const auto count = static_cast<int32_t>(x.rows());
    const ForwardBatch::Group& group = cache.step(step.first, count);
    ResidualStream residuals = stream(x);
    const NormWeights none;
    ResidualBranch branch(residuals, none, none);
    PagesBeside beside;
    if (step.beside != nullptr) {
      beside = {&step.beside->view(), &step.beside->step(step.first, count)};
    }
    part.run({.branch = branch,
              .scratch = scratch(part, count),
              .angles = step.angles,
              .kv = cache.view(),
              .group = group,
              .kept = step.read_last ? &cache.keep(*step.read_last) : nullptr,
              .states = cache.states(),
              .carried = step.carried,
              .frames = step.frames,
              .beside = beside});
    branch.finish();
    residuals.settle();
    return copy_of(residuals.hidden());
  }

  static TestMatrix copy_of(const TensorView& rows) {
    TestMatrix copy(rows.rows(), rows.columns());
    for (int64_t t = 0; t < rows.rows(); ++t) {
      for (int64_t i = 0; i < rows.columns(); ++i) copy.at(t, i) = f32_row(rows, t)[i];
    }
    return copy;
  }

  static constexpr float kEps = 1e-5f;

 private:
  const bool in_place_;
  const int64_t hidden_;
  TestDevice device_ = TestDevice::cpu(2);
  OpContext context_ = device_.context();
  TestMatrix normed_, branch_;
  std::deque<TestMatrix> matrices_;
  std::vector<TensorView> areas_;
};

// That bits do not depend on where results lie: over what they are made of, as decoder.cc shares
// scratch memory on a CPU, and apart, as on a GPU.
template <class Spec>
void expect_same_bits_in_place_and_apart(const Spec& spec, int64_t hidden, int32_t rows) {
  Rng rng(5);
  const TestMatrix x(rng, rows, hidden);
  std::vector<TestMatrix> results;
  for (const bool in_place : {true, false}) {
    PartPass pass(rows, hidden, in_place);
    MadeTensors tensors(pass.device());
    const auto part = make_part(spec, hidden);
    ASSERT_TRUE(part->load(tensors).ok());
    PartCache cache(pass.device(), *part, rows);
    results.push_back(pass.run(*part, cache, x, {}));
  }
  EXPECT_TRUE(same_bits(results[0], results[1]));
}

}  // namespace headrace
