#include "ops/attention/compress_keys.h"

#include <gtest/gtest.h>

#include <cmath>
#include <vector>

#include "ops/attention/kv_numbers.h"
#include "ops/op_fixture.h"

namespace headrace::compress_keys_test {
namespace {

constexpr int32_t kTokens = 75, kBlocks = 5, kDim = 12, kIndexDim = 8, kPairs = 2;
constexpr float kNormEps = 1e-5f;

// A pool of NaN, and a table that is not in order.
class Pages {
 public:
  explicit Pages(KvLayerView layer) : view(layer) {
    view.v_aliases_k = true;
    view.kv_heads = 1;
    view.k_dim = view.v_dim = kDim;
    view.v_offset = k_part_bytes(view);
    view.index_offset = view.v_offset;
    view.source_offset = source_part_offset(view);
    view.block_stride = layer_part_bytes(view);
    memory_.resize(static_cast<size_t>(kBlocks * view.block_stride), std::byte{0xff});
    view.base = memory_.data();
    for (int32_t b = 0; b < kBlocks; ++b) table.push_back((b + 2) % kBlocks);
  }
  int64_t slot(int32_t place) const {
    return int64_t{table[static_cast<size_t>(place / 16)]} * 16 + place % 16;
  }
  // Of the run of tokens that ends at this place.
  double shared_number(int32_t place, int32_t d, bool of_index) const {
    const int32_t block = table[static_cast<size_t>(place / 16)];
    return load_number(of_index ? index_head(view, block) : k_head(view, block, 0),
                       place % 16 / view.rate, d);
  }
  bool operator==(const Pages& other) const { return memory_ == other.memory_; }

  KvLayerView view;
  std::vector<int32_t> table;

 private:
  std::vector<std::byte> memory_;
};

struct Case {
  int32_t rate;
  bool overlaps;
  bool of_index;
  KvFormat format = KvFormat::kF32;

  int32_t dim() const { return of_index ? kIndexDim : kDim; }
  int32_t series() const { return overlaps ? 2 : 1; }
  int32_t width() const { return series() * dim(); }
};

class CompressTest {
 public:
  explicit CompressTest(const Case& c)
      : case_(c),
        keys(rng_, kTokens, kDim),
        sources(rng_, kTokens, kFirst + 2 * c.width()),
        own({.k_format = c.format,
             .v_format = c.format,
             .source_dim = static_cast<int32_t>(sources.columns())}),
        shared(
            {.k_format = c.format, .v_format = c.format, .index_dim = kIndexDim, .rate = c.rate}),
        bias(rng_, c.rate, c.width(), 1.0f),
        norm(random_floats(rng_, c.dim())) {}

  // Keeps tokens [first, last) and makes what they complete.
  void step(int32_t first, int32_t last) {
    TestDevice device = TestDevice::cpu(3);
    OpContext context = device.context();
    std::vector<int64_t> slots;
    for (int32_t t = first; t < last; ++t) slots.push_back(own.slot(t));
    keep_sources(context, {.keys = keys.view().row_range(first, last - first),
                           .sources = sources.view().row_range(first, last - first),
                           .cache = own.view,
                           .slots = slots});
    std::vector<CompleteRun> runs;
    for (int32_t t = first; t < last; ++t) {
      if ((t + 1) % case_.rate == 0) runs.push_back({t, own.table.data(), shared.table.data()});
    }
    TestMatrix cos(std::ssize(runs), kPairs, 0), sin(std::ssize(runs), kPairs, 0);
    for (size_t r = 0; r < runs.size(); ++r) {
      for (int64_t i = 0; i < kPairs; ++i) {
        const double angle = angle_of(runs[r].last + 1 - case_.rate, i);
        cos.at(static_cast<int64_t>(r), i) = static_cast<float>(std::cos(angle));
        sin.at(static_cast<int64_t>(r), i) = static_cast<float>(std::sin(angle));
      }
    }
    const std::vector<float> biases = rows_side_by_side(bias);
    compress_keys(context, {.sources = own.view,
                            .first = kFirst,
                            .overlaps = case_.overlaps,
                            .bias = biases.data(),
                            .norm = norm.data(),
                            .norm_eps = kNormEps,
                            .cos = cos.view(),
                            .sin = sin.view(),
                            .runs = runs,
                            .keys = shared.view,
                            .of_index = case_.of_index});
  }

  // The key of the run that ends at this place, in doubles.
  std::vector<double> expected(int32_t last) const {
    const int32_t first = last + 1 - case_.rate, dim = case_.dim();
    std::vector<double> key;
    double squares = 0;
    for (int32_t d = 0; d < dim; ++d) {
      double weights = 0, sum = 0;
      const auto add = [&](int32_t from, int32_t series) {
        for (int32_t j = 0; j < case_.rate; ++j) {
          const int32_t column = series * dim + d;
          const double gate = sources.at(from + j, kFirst + case_.width() + column);
          const double weight = std::exp(gate + bias.at(j, column));
          weights += weight;
          sum += weight * sources.at(from + j, kFirst + column);
        }
      };
      if (case_.overlaps && first > 0) add(first - case_.rate, 0);
      add(first, case_.series() - 1);
      key.push_back(sum / weights);
      squares += key.back() * key.back();
    }
    for (size_t d = 0; d < key.size(); ++d) key[d] *= norm[d] / std::sqrt(squares / dim + kNormEps);
    for (int64_t i = 0; i < kPairs; ++i) {
      double* const pair = &key[key.size() - 2 * kPairs + 2 * static_cast<size_t>(i)];
      const double a = pair[0], b = pair[1], angle = angle_of(first, i);
      pair[0] = a * std::cos(angle) - b * std::sin(angle);
      pair[1] = b * std::cos(angle) + a * std::sin(angle);
    }
    return key;
  }

 private:
  static constexpr int32_t kFirst = 3;
  static double angle_of(int32_t position, int64_t i) {
    return position * std::pow(10.0, -static_cast<double>(i));
  }
  static std::vector<float> rows_side_by_side(const TestMatrix& matrix) {
    std::vector<float> all;
    for (int64_t r = 0; r < matrix.rows(); ++r) {
      for (int64_t c = 0; c < matrix.columns(); ++c) all.push_back(matrix.at(r, c));
    }
    return all;
  }

  const Case case_;
  Rng rng_{9};

 public:
  TestMatrix keys, sources;
  Pages own, shared;
  TestMatrix bias;
  std::vector<float> norm;
};

std::vector<Case> cases() {
  std::vector<Case> all;
  for (const int32_t rate : {2, 4, 5, 16, 20, 32}) {
    for (const bool overlaps : {false, true}) {
      for (const bool of_index : {false, true}) all.push_back({rate, overlaps, of_index});
    }
  }
  return all;
}

TEST(CompressKeys, AKeyIsTheWeightedSumOfItsTokensNumbers) {
  for (const Case& c : cases()) {
    SCOPED_TRACE(testing::Message() << c.rate << " " << c.overlaps << " " << c.of_index);
    CompressTest test(c);
    test.step(0, kTokens);
    for (int32_t last = c.rate - 1; last < kTokens; last += c.rate) {
      const std::vector<double> want = test.expected(last);
      for (int32_t d = 0; d < c.dim(); ++d) {
        ASSERT_NEAR(test.shared.shared_number(last, d, c.of_index), want[static_cast<size_t>(d)],
                    1e-5)
            << last << " " << d;
      }
    }
    for (int32_t t = 0; t < kTokens; ++t) {
      for (int32_t d = 0; d < kDim; ++d) {
        ASSERT_EQ(load_key(test.own.view, test.own.slot(t), 0, d), test.keys.at(t, d));
      }
    }
  }
}

TEST(CompressKeys, BitsDoNotDependOnTheSteps) {
  for (const KvFormat format : {KvFormat::kF32, KvFormat::kF16, KvFormat::kInt8}) {
    for (Case c : cases()) {
      c.format = format;
      CompressTest whole(c), cut(c);
      whole.step(0, kTokens);
      for (const auto& [first, last] :
           {std::pair(0, 1), {1, 3}, {3, 21}, {21, 38}, {38, 39}, {39, kTokens}}) {
        cut.step(first, last);
      }
      EXPECT_TRUE(whole.own == cut.own && whole.shared == cut.shared) << c.rate;
    }
  }
}

}  // namespace
}  // namespace headrace::compress_keys_test
