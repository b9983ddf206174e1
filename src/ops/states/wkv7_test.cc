#include "ops/states/wkv7.h"

#include <gtest/gtest.h>

#include <array>
#include <cmath>

#include "ops/states/state_fixture.h"

namespace headrace::wkv7_test {
namespace {

// Of each size the first layer and another.
struct Wkv7Case {
  Wkv7Heads heads;
  bool first = false;
};
const Wkv7Case kCases[] = {
    {{.heads = 2, .head_dim = 64}}, {{.heads = 3, .head_dim = 16}, true},
    {{.heads = 1, .head_dim = 40}}, {{.heads = 2, .head_dim = 20}, true},
    {{.heads = 1, .head_dim = 12}},
};

class WkvTest {
 public:
  static constexpr int32_t kRows = 29;

  explicit WkvTest(const Wkv7Case& of) : heads_(of.heads), first_(of.first) {
    for (TestMatrix& rows : rows_) rows = TestMatrix(rng_, kRows, heads_.channels());
    for (auto& vector : vectors_) vector = random_floats(rng_, heads_.channels());
  }
  const Wkv7Heads& heads() const { return heads_; }

  Wkv7Args args(const StateView& states, TestMatrix& out) {
    Wkv7Args args{.heads = heads_,
                  .r = rows_[0].view(),
                  .w = rows_[1].view(),
                  .k = rows_[2].view(),
                  .v = rows_[3].view(),
                  .a = rows_[4].view(),
                  .g = rows_[5].view(),
                  .v_first = {},
                  .v_gate = {},
                  .w0 = vectors_[0].data(),
                  .a0 = vectors_[1].data(),
                  .v0 = vectors_[2].data(),
                  .k_k = vectors_[3].data(),
                  .k_a = vectors_[4].data(),
                  .r_k = vectors_[5].data(),
                  .norm = vectors_[6].data(),
                  .norm_bias = vectors_[7].data(),
                  .norm_eps = kEps,
                  .states = states,
                  .out = out.view()};
    if (!first_) {
      args.v_first = rows_[6].view();
      args.v_gate = rows_[7].view();
    }
    return args;
  }

  // As it is written, with the state as a whole matrix, in doubles.
  TestMatrix expected() const {
    TestMatrix out(kRows, heads_.channels());
    for (int32_t head = 0; head < heads_.heads; ++head) run_head(head, out);
    return out;
  }

 private:
  static constexpr float kEps = 64e-5f;
  using Vector = std::vector<double>;

  static double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

  void run_head(int32_t head, TestMatrix& out) const {
    const auto dim = static_cast<size_t>(heads_.head_dim);
    const size_t first = static_cast<size_t>(head) * dim;
    std::vector<Vector> s(dim, Vector(dim));  // [value][key]
    for (int32_t t = 0; t < kRows; ++t) {
      const auto row = [&](size_t which, size_t i) {
        return double{rows_[which].at(t, static_cast<int64_t>(first + i))};
      };
      const auto vector = [&](size_t which, size_t i) {
        return double{vectors_[which][first + i]};
      };
      Vector w(dim), kk(dim), b(dim), k(dim), v(dim), y(dim);
      double length = 0, bonus = 0;
      for (size_t i = 0; i < dim; ++i) {
        const double a = sigmoid(vector(1, i) + row(4, i));
        w[i] = std::exp(-0.6065306597126334 * sigmoid(vector(0, i) + row(1, i)));
        kk[i] = row(2, i) * vector(3, i);
        length += kk[i] * kk[i];
        b[i] = a;
        k[i] = row(2, i) + row(2, i) * (a - 1) * vector(4, i);
        const double gate = sigmoid(vector(2, i) + row(7, i));
        v[i] = first_ ? row(3, i) : row(3, i) * (1 - gate) + row(6, i) * gate;
        bonus += row(0, i) * k[i] * vector(5, i);
      }
      for (size_t i = 0; i < dim; ++i) kk[i] /= std::sqrt(length);
      for (size_t i = 0; i < dim; ++i) {
        double removed = 0;
        for (size_t j = 0; j < dim; ++j) removed -= s[i][j] * kk[j];
        for (size_t j = 0; j < dim; ++j) {
          s[i][j] = s[i][j] * w[j] + removed * kk[j] * b[j] + v[i] * k[j];
          y[i] += s[i][j] * row(0, j);
        }
      }
      double mean = 0, variance = 0;
      for (const double each : y) mean += each / static_cast<double>(dim);
      for (const double each : y)
        variance += (each - mean) * (each - mean) / static_cast<double>(dim);
      for (size_t i = 0; i < dim; ++i) {
        const double normed = (y[i] - mean) / std::sqrt(variance + kEps);
        out.at(t, static_cast<int64_t>(first + i)) =
            static_cast<float>((normed * vector(6, i) + vector(7, i) + bonus * v[i]) * row(5, i));
      }
    }
  }

  const Wkv7Heads heads_;
  const bool first_;
  Rng rng_{11};
  std::array<TestMatrix, 8> rows_ = {TestMatrix(1, 1), TestMatrix(1, 1), TestMatrix(1, 1),
                                     TestMatrix(1, 1), TestMatrix(1, 1), TestMatrix(1, 1),
                                     TestMatrix(1, 1), TestMatrix(1, 1)};
  std::array<std::vector<float>, 8> vectors_;
};

template <class Body>
void for_each_kernel(const Body& body) {
  TestDevice device = TestDevice::cpu(2);
  for (const Wkv7Case& of : kCases) {
    SCOPED_TRACE(testing::Message() << of.heads.heads << " of " << of.heads.head_dim);
    for (const auto& kernel : wkv7_kernels().all()) {
      SCOPED_TRACE(kernel.name);
      WkvTest test(of);
      TestMatrix out(WkvTest::kRows, test.heads().channels());
      if (!kernel.supports(device.device().traits(), test.args({}, out))) continue;
      body(device, kernel, test);
    }
  }
}

TEST(Wkv7, EveryKernelIsNearDoubles) {
  for_each_kernel([](TestDevice& device, const auto& kernel, WkvTest& test) {
    TestStates states(1, test.heads().state_bytes());
    const StateSequence all{.row_count = WkvTest::kRows};
    TestMatrix out(WkvTest::kRows, test.heads().channels());
    OpContext context = device.context();
    kernel.run(context, test.args(states.view({&all, 1}), out));
    EXPECT_TRUE(out.gaps_untouched());
    EXPECT_TRUE(all_close(out, test.expected(), 2e-5, 2e-5));
  });
}

// As the test of causal_conv with this name.
TEST(Wkv7, BitsDoNotDependOnStepsNorOnWhereAStateWasSaved) {
  for_each_kernel([](TestDevice& device, const auto& kernel, WkvTest& test) {
    OpContext context = device.context();
    expect_bits_whatever_the_steps(WkvTest::kRows, test.heads().channels(),
                                   test.heads().state_bytes(),
                                   [&](const StateView& states, TestMatrix& out) {
                                     kernel.run(context, test.args(states, out));
                                   });
  });
}

// The instruction sets do the same operations in the same order; out may lie over r.
TEST(Wkv7, KernelsForInstructionSetsGiveTheSameBits) {
  for (const Wkv7Case& of : kCases) {
    std::vector<TestMatrix> results;
    TestDevice device = TestDevice::cpu(2);
    for (const auto& kernel : wkv7_kernels().all()) {
      WkvTest test(of);
      TestMatrix out(WkvTest::kRows, of.heads.channels());
      TestStates states(1, of.heads.state_bytes());
      const StateSequence all{.row_count = WkvTest::kRows};
      Wkv7Args args = test.args(states.view({&all, 1}), out);
      const bool reference = kernel.name.ends_with("reference");
      if (reference || !kernel.supports(device.device().traits(), args)) continue;
      OpContext context = device.context();
      kernel.run(context, args);
      results.push_back(out);

      TestMatrix r(WkvTest::kRows, of.heads.channels());
      for (int32_t t = 0; t < WkvTest::kRows; ++t) {
        std::copy_n(f32_row(args.r, t), of.heads.channels(), &r.at(t, 0));
      }
      args.r = r.view();
      args.out = r.view();
      kernel.run(context, args);
      EXPECT_TRUE(same_bits(r, out));
    }
    for (const TestMatrix& other : results) EXPECT_TRUE(same_bits(other, results.front()));
  }
}

}  // namespace
}  // namespace headrace::wkv7_test
