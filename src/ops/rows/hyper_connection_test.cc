#include "ops/rows/hyper_connection.h"

#include <gtest/gtest.h>

#include <cmath>

#include "ops/op_fixture.h"

namespace headrace::hyper_connection_test {
namespace {

constexpr int64_t kRows = 7, kStreams = 3, kColumns = 20;
constexpr double kNormEps = 1e-5, kEps = 1e-3, kMagnitude = 2.5;

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }

TEST(HyperConnection, IsNearDoubles) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(3);
  TestMatrix streams(rng, kRows, kStreams * kColumns);
  TestMatrix logits(rng, kRows, 2 * kStreams, 3.0f), before(rng, kRows, kColumns);
  const std::vector<float> scales = {0.7f, -0.4f}, biases = random_floats(rng, 2 * kStreams);
  TestMatrix x(kRows, kColumns), gates(kRows, kStreams);
  hyper_mix(context, {.streams = streams.view(),
                      .logits = logits.view(),
                      .scales = scales.data(),
                      .biases = biases.data(),
                      .norm_eps = kNormEps,
                      .eps = kEps,
                      .magnitude = kMagnitude,
                      .x = x.view(),
                      .gates = gates.view()});
  TestMatrix mixed(kRows, kColumns), made(kRows, kStreams), sums = streams;
  for (int64_t t = 0; t < kRows; ++t) {
    double squares = 0;
    for (int64_t i = 0; i < kStreams * kColumns; ++i) {
      squares += double{streams.at(t, i)} * streams.at(t, i);
    }
    const double factor = 1 / std::sqrt(squares / (kStreams * kColumns) + kNormEps);
    for (int64_t j = 0; j < kStreams; ++j) {
      const auto at = static_cast<size_t>(j);
      const double read = sigmoid(logits.at(t, j) * factor * scales[0] + biases[at]) + kEps;
      const double m = logits.at(t, kStreams + j) * factor;
      made.at(t, j) =
          static_cast<float>(kMagnitude * sigmoid(m * scales[1] + biases[at + kStreams]) + kEps);
      for (int64_t c = 0; c < kColumns; ++c) {
        const float before_it = j == 0 ? 0.0f : mixed.at(t, c);
        mixed.at(t, c) = before_it + static_cast<float>(read * streams.at(t, j * kColumns + c));
      }
    }
    for (int64_t i = 0; i < kStreams * kColumns; ++i) {
      const int64_t c = i % kColumns;
      sums.at(t, i) += made.at(t, i / kColumns) * (mixed.at(t, c) - before.at(t, c));
    }
  }
  EXPECT_TRUE(all_close(x, mixed, 1e-6, 1e-6));
  EXPECT_TRUE(all_close(gates, made, 1e-6, 1e-6));
  hyper_add(
      context,
      {.streams = streams.view(), .gates = gates.view(), .x = x.view(), .before = before.view()});
  EXPECT_TRUE(all_close(streams, sums, 1e-5, 1e-5));
  EXPECT_TRUE(streams.gaps_untouched() && x.gaps_untouched() && gates.gaps_untouched());
}

// Sinkhorn and Knopp's rounds as they are written, over a matrix of doubles.
std::vector<double> doubly_stochastic(std::vector<double> matrix, int32_t rounds) {
  const auto divide = [&](int64_t step, int64_t next) {
    for (int64_t i = 0; i < kStreams; ++i) {
      double sum = kEps;
      for (int64_t j = 0; j < kStreams; ++j)
        sum += matrix[static_cast<size_t>(i * next + j * step)];
      for (int64_t j = 0; j < kStreams; ++j)
        matrix[static_cast<size_t>(i * next + j * step)] /= sum;
    }
  };
  divide(kStreams, 1);
  for (int32_t round = 1; round < rounds; ++round) {
    divide(1, kStreams);
    divide(kStreams, 1);
  }
  return matrix;
}

TEST(HyperConnection, AMatrixThatIsNearlyDoublyStochasticMixesTheStreams) {
  constexpr int64_t kMatrix = kStreams * kStreams;
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  for (const int32_t rounds : {1, 2, 20}) {
    Rng rng(static_cast<uint64_t>(rounds));
    const TestMatrix streams(rng, kRows, kStreams * kColumns);
    TestMatrix logits(rng, kRows, 2 * kStreams + kMatrix, 3.0f), before(rng, kRows, kColumns);
    const std::vector<float> scales = {0.7f, -0.4f, 1.2f};
    const std::vector<float> biases = random_floats(rng, 2 * kStreams + kMatrix);
    TestMatrix x(kRows, kColumns), gates(kRows, kStreams), mixes(kRows, kMatrix);
    TestMatrix from = streams;
    hyper_mix(context, {.streams = from.view(),
                        .logits = logits.view(),
                        .scales = scales.data(),
                        .biases = biases.data(),
                        .norm_eps = kNormEps,
                        .eps = kEps,
                        .magnitude = kMagnitude,
                        .x = x.view(),
                        .gates = gates.view(),
                        .mixes = mixes.view(),
                        .rounds = rounds});
    hyper_add(context, {.streams = from.view(),
                        .gates = gates.view(),
                        .x = x.view(),
                        .before = before.view(),
                        .mixes = mixes.view()});
    for (int64_t t = 0; t < kRows; ++t) {
      double squares = 0;
      for (int64_t i = 0; i < kStreams * kColumns; ++i) {
        squares += double{streams.at(t, i)} * streams.at(t, i);
      }
      const double factor = 1 / std::sqrt(squares / (kStreams * kColumns) + kNormEps);
      const auto logit = [&](int64_t at, size_t part) {
        return logits.at(t, at) * factor * scales[part] + biases[static_cast<size_t>(at)];
      };
      std::vector<double> matrix;
      for (int64_t i = 0; i < kStreams; ++i) {
        double sum = 0;
        for (int64_t j = 0; j < kStreams; ++j) {
          sum += std::exp(logit(2 * kStreams + i * kStreams + j, 2));
        }
        for (int64_t j = 0; j < kStreams; ++j) {
          matrix.push_back(std::exp(logit(2 * kStreams + i * kStreams + j, 2)) / sum + kEps);
        }
      }
      matrix = doubly_stochastic(matrix, rounds);
      for (int64_t j = 0; j < kStreams; ++j) {
        const double gate = kMagnitude * sigmoid(logit(kStreams + j, 1));
        ASSERT_NEAR(gates.at(t, j), gate, 1e-5) << t << " " << j;
        for (int64_t c = 0; c < kColumns; ++c) {
          double want = gate * (double{x.at(t, c)} - before.at(t, c));
          for (int64_t i = 0; i < kStreams; ++i) {
            want += matrix[static_cast<size_t>(i * kStreams + j)] * streams.at(t, i * kColumns + c);
          }
          ASSERT_NEAR(from.at(t, j * kColumns + c), want, 1e-4) << t << " " << j << " " << c;
        }
      }
    }
    EXPECT_TRUE(from.gaps_untouched() && gates.gaps_untouched() && mixes.gaps_untouched());
  }
}

}  // namespace
}  // namespace headrace::hyper_connection_test
