#include "ops/rows/route_experts.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>

#include "ops/op_fixture.h"

namespace headrace::route_experts_test {
namespace {

// What each row takes: weights by expert.
using Choices = std::vector<std::map<int32_t, float>>;

struct Routed {
  explicit Routed(int64_t rows, const RouterRule& rule)
      : starts(static_cast<size_t>(rule.networks()) + 1, -1),
        taken(static_cast<size_t>(rows * rule.networks_of_row()), -1),
        places(taken.size(), -1),
        weights(taken.size(), -1.0f) {}
  ExpertRows out() { return {starts, taken, weights, places}; }

  // Checks that the lists are whole and in order.
  Choices choices(int64_t rows) const {
    Choices choices(static_cast<size_t>(rows));
    EXPECT_EQ(starts.front(), 0);
    EXPECT_EQ(starts.back(), static_cast<int32_t>(taken.size()));
    for (size_t e = 0; e + 1 < starts.size(); ++e) {
      for (int32_t i = starts[e]; i < starts[e + 1]; ++i) {
        const auto at = static_cast<size_t>(i);
        EXPECT_TRUE(i == starts[e] || taken[at - 1] < taken[at]) << "expert " << e;
        choices[static_cast<size_t>(taken[at])][static_cast<int32_t>(e)] = weights[at];
      }
    }
    expect_places(rows);
    return choices;
  }
  // A row's places are where it is listed, in the list's order.
  void expect_places(int64_t rows) const {
    const size_t each = taken.size() / static_cast<size_t>(rows);
    for (size_t i = 0; i < places.size(); ++i) {
      ASSERT_TRUE(places[i] >= 0 && places[i] < std::ssize(taken));
      EXPECT_EQ(taken[static_cast<size_t>(places[i])], static_cast<int32_t>(i / each));
      EXPECT_TRUE(i % each == 0 || places[i - 1] < places[i]);
    }
  }

  std::vector<int32_t> starts, taken, places;
  std::vector<float> weights;
};

Choices route(TestMatrix logits, const RouterRule& rule, const float* bias = nullptr,
              int threads = 2) {
  TestDevice device = TestDevice::cpu(threads);
  OpContext context = device.context();
  Routed routed(logits.rows(), rule);
  route_experts(context,
                {.rule = rule, .logits = logits.view(), .bias = bias, .out = routed.out()});
  return routed.choices(logits.rows());
}

TestMatrix row_of(const std::vector<float>& values) {
  TestMatrix row(1, static_cast<int64_t>(values.size()));
  for (size_t i = 0; i < values.size(); ++i) row.at(0, static_cast<int64_t>(i)) = values[i];
  return row;
}

double sigmoid(double x) { return 1 / (1 + std::exp(-x)); }
double sqrt_softplus(double x) { return std::sqrt(std::log(1 + std::exp(x))); }

// By sorting, in double.
std::map<int32_t, double> expected_choice(const TestMatrix& logits, int64_t row,
                                          const RouterRule& rule) {
  std::vector<double> scores;
  double sum = 0;
  for (int64_t e = 0; e < rule.experts; ++e) {
    const double x = logits.at(row, e);
    scores.push_back(rule.scores == RouterScores::kSigmoid        ? sigmoid(x)
                     : rule.scores == RouterScores::kSqrtSoftplus ? sqrt_softplus(x)
                                                                  : std::exp(x));
    sum += scores.back();
  }
  if (rule.scores != RouterScores::kSoftmax) sum = 1;
  std::vector<int32_t> order(scores.size());
  std::iota(order.begin(), order.end(), 0);
  std::stable_sort(order.begin(), order.end(), [&](int32_t a, int32_t b) {
    return scores[static_cast<size_t>(a)] > scores[static_cast<size_t>(b)];
  });
  order.resize(static_cast<size_t>(rule.used));
  if (rule.normalised) {
    sum = 0;
    for (const int32_t e : order) sum += scores[static_cast<size_t>(e)];
  }
  std::map<int32_t, double> choice;
  for (const int32_t e : order) choice[e] = rule.scale * scores[static_cast<size_t>(e)] / sum;
  return choice;
}

// By two exponentials each, in double: of the best, then without it.
std::map<int32_t, double> expected_mix(const TestMatrix& logits, int64_t row,
                                       const RouterRule& rule) {
  std::map<int32_t, double> choice;
  while (std::ssize(choice) < rule.used) {
    int32_t best = -1;
    for (int32_t e = 0; e < rule.experts; ++e) {
      if (choice.contains(e)) continue;
      if (best < 0 || logits.at(row, e) > logits.at(row, best)) best = e;
    }
    const double largest = logits.at(row, best);
    double sum = 0;
    for (int32_t e = 0; e < rule.experts; ++e) {
      const double x = logits.at(row, e), size = std::max(std::abs(x), largest);
      if (!choice.contains(e) && largest - x <= 2 * double{rule.tolerance} * size) {
        sum += std::exp(x);
      }
    }
    choice[best] = rule.scale * std::exp(largest) / sum;
  }
  return choice;
}

TEST(RouteExperts, ASparseMixerTakesTwoAmongTheirNear) {
  for (const float tolerance : {0.01f, 0.3f}) {
    const RouterRule rule{.experts = 16,
                          .used = 2,
                          .scores = RouterScores::kSparseMixer,
                          .tolerance = tolerance,
                          .scale = 1.5f};
    Rng rng(5);
    TestMatrix logits(rng, 50, 16, 2.0f);
    logits.at(49, 0) = std::nanf("");
    const Choices choices = route(logits, rule);
    for (int64_t t = 0; t < 50; ++t) {
      const auto& chosen = choices[static_cast<size_t>(t)];
      ASSERT_EQ(chosen.size(), 2u);
      if (t == 49) {
        for (const auto& [expert, weight] : chosen) EXPECT_TRUE(std::isnan(weight));
        continue;
      }
      for (const auto& [expert, weight] : expected_mix(logits, t, rule)) {
        ASSERT_TRUE(chosen.contains(expert)) << t;
        EXPECT_NEAR(chosen.at(expert), weight, 1e-6) << t;
      }
    }
  }
}

TEST(RouteExperts, TakesTheBestOfEachRowByEveryRule) {
  for (const auto scores :
       {RouterScores::kSoftmax, RouterScores::kSigmoid, RouterScores::kSqrtSoftplus}) {
    for (const bool normalised : {false, true}) {
      for (const int32_t used : {1, 3, 11}) {
        const RouterRule rule{
            .experts = 11, .used = used, .scores = scores, .normalised = normalised, .scale = 1.5f};
        Rng rng(static_cast<uint64_t>(used));
        const TestMatrix logits(rng, 50, 11, 2.0f);
        const Choices choices = route(logits, rule);
        for (int64_t t = 0; t < 50; ++t) {
          const auto expected = expected_choice(logits, t, rule);
          const auto& choice = choices[static_cast<size_t>(t)];
          ASSERT_EQ(choice.size(), expected.size());
          for (const auto& [expert, weight] : expected) {
            ASSERT_TRUE(choice.contains(expert)) << t << " " << expert;
            EXPECT_NEAR(choice.at(expert), weight, 1e-6) << t << " " << expert;
          }
        }
      }
    }
  }
}

TEST(RouteExperts, OfEqualScoresTheFirst) {
  const Choices choices =
      route(row_of({1, 2, 0, 2, 1, 2}), {.experts = 6, .used = 4, .normalised = true});
  std::vector<int32_t> taken;
  for (const auto& [expert, weight] : choices[0]) taken.push_back(expert);
  EXPECT_EQ(taken, (std::vector<int32_t>{0, 1, 3, 5}));
}

// By the sum of its two best scores, which is not the order of sums of logits.
TEST(RouteExperts, GroupsOfASoftmaxAreScoredByIt) {
  const RouterRule rule{.experts = 4, .used = 1, .groups = 2, .groups_used = 1};
  EXPECT_TRUE(route(row_of({5, -9, 2, 2}), rule)[0].contains(0));
  EXPECT_TRUE(route(row_of({2, 2, -9, 1}), rule)[0].contains(0));
}

// Of logits, whose scores a sigmoid makes alike, it moves the choice by less.
TEST(RouteExperts, ABiasMayBeOfLogits) {
  const std::vector<float> bias = {0, 0, 0, 1};
  RouterRule rule{.experts = 4, .used = 1, .scores = RouterScores::kSigmoid, .normalised = false};
  EXPECT_TRUE(route(row_of({4, 3, 2, 1}), rule, bias.data())[0].contains(3));
  rule.biases_logits = true;
  const Choices choices = route(row_of({4, 3, 2, 1}), rule, bias.data());
  ASSERT_TRUE(choices[0].contains(0));
  EXPECT_FLOAT_EQ(choices[0].at(0), static_cast<float>(sigmoid(4)));
}

// The bias moves the choice, and not the weights.
TEST(RouteExperts, ABiasIsOfTheChoiceAlone) {
  const std::vector<float> bias = {0, 0, 0, 1};
  const RouterRule rule{.experts = 4, .used = 2, .scores = RouterScores::kSigmoid};
  const Choices choices = route(row_of({1, 3, 2, -4}), rule, bias.data());
  ASSERT_EQ(choices[0].size(), 2u);
  EXPECT_NEAR(choices[0].at(1), sigmoid(3), 1e-6);
  EXPECT_NEAR(choices[0].at(3), sigmoid(-4), 1e-6);
}

// Weights are of the scores of those that the caller names, whatever is best.
TEST(RouteExperts, TheCallerMayChoose) {
  const RouterRule rule{.experts = 4,
                        .used = 2,
                        .scores = RouterScores::kSqrtSoftplus,
                        .normalised = true,
                        .scale = 1.5f};
  TestMatrix logits(2, 4);
  for (int64_t t = 0; t < 2; ++t) {
    for (int64_t e = 0; e < 4; ++e) logits.at(t, e) = static_cast<float>(t + 2 * e - 3);
  }
  const std::vector<int32_t> experts = {2, 0, 1, 3};
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Routed routed(2, rule);
  route_experts(context, {.rule = rule,
                          .logits = logits.view(),
                          .bias = nullptr,
                          .out = routed.out(),
                          .experts = experts.data()});
  const Choices choices = routed.choices(2);
  for (size_t t = 0; t < 2; ++t) {
    ASSERT_EQ(choices[t].size(), 2u);
    const int32_t a = experts[2 * t], b = experts[2 * t + 1];
    const double of_a = sqrt_softplus(logits.at(static_cast<int64_t>(t), a));
    const double of_b = sqrt_softplus(logits.at(static_cast<int64_t>(t), b));
    EXPECT_NEAR(choices[t].at(a), 1.5 * of_a / (of_a + of_b), 1e-6);
    EXPECT_NEAR(choices[t].at(b), 1.5 * of_b / (of_a + of_b), 1e-6);
  }
}

TEST(RouteExperts, ExpertsMayHaveScalesOfTheirOwn) {
  const std::vector<float> scales = {2, 3, 0.5f, 7};
  const RouterRule rule{.experts = 4, .used = 2, .normalised = true};
  Rng rng(5);
  TestMatrix logits(rng, 9, 4);
  const Choices plain = route(logits, rule);
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  Routed routed(9, rule);
  route_experts(context, {.rule = rule,
                          .logits = logits.view(),
                          .bias = nullptr,
                          .out = routed.out(),
                          .scales = scales.data()});
  const Choices scaled = routed.choices(9);
  for (size_t t = 0; t < plain.size(); ++t) {
    ASSERT_EQ(plain[t].size(), scaled[t].size());
    for (const auto& [expert, weight] : plain[t]) {
      EXPECT_EQ(scaled[t].at(expert), weight * scales[static_cast<size_t>(expert)]);
    }
  }
}

// Expert 5 is the best, but its group of three has no second.
TEST(RouteExperts, ExpertsOfTheBestGroups) {
  const RouterRule rule{
      .experts = 6, .used = 2, .scores = RouterScores::kSigmoid, .groups = 2, .groups_used = 1};
  const Choices choices = route(row_of({1, 2, 1.5, -9, -9, 2.5}), rule);
  ASSERT_EQ(choices[0].size(), 2u);
  EXPECT_TRUE(choices[0].contains(1) && choices[0].contains(2));
}

// Of the better group two scores are above 0 and one is not.
TEST(RouteExperts, ExpertsOfOtherGroupsMayCountAsZero) {
  RouterRule rule{
      .experts = 6, .used = 3, .scores = RouterScores::kSigmoid, .groups = 2, .groups_used = 1};
  const std::vector<float> bias{-1, -0.9f, -1, 0.2f, -2, 0.1f};
  const auto chosen = [&] {
    const Choices choices = route(row_of({0, 0, 0, 0, 0, 0}), rule, bias.data());
    std::vector<int32_t> experts;
    for (const auto& [expert, weight] : choices[0]) {
      EXPECT_EQ(weight, 0.5f);
      experts.push_back(expert);
    }
    return experts;
  };
  EXPECT_EQ(chosen(), (std::vector<int32_t>{3, 4, 5}));
  rule.others_are_zero = true;
  EXPECT_EQ(chosen(), (std::vector<int32_t>{0, 3, 5}));
}

TEST(RouteExperts, ASharedExpertIsTheLastOfEveryRow) {
  for (const auto shared : {SharedExpert::kWhole, SharedExpert::kGated}) {
    const RouterRule rule{.experts = 5, .used = 2, .normalised = true, .shared = shared};
    Rng rng(1);
    const TestMatrix logits(rng, 20, rule.logits());
    const Choices choices = route(logits, rule);
    for (int64_t t = 0; t < 20; ++t) {
      const auto& choice = choices[static_cast<size_t>(t)];
      ASSERT_EQ(choice.size(), 3u);
      const double weight = shared == SharedExpert::kGated ? sigmoid(logits.at(t, 5)) : 1.0;
      EXPECT_NEAR(choice.at(5), weight, 1e-6);
    }
  }
}

// Ranks that have experts 0 to 2 and 3 and 4: of each row's places each has its own and the shared
// one's, in the order of the experts.
TEST(RouteExperts, TellsThePlacesOfItsOwnExperts) {
  const RouterRule rule{.experts = 5, .used = 2, .shared = SharedExpert::kWhole};
  constexpr int64_t kRows = 20;
  Rng rng(6);
  TestMatrix logits(rng, kRows, rule.logits());
  const auto places_of = [&](std::optional<ExpertRange> own) {
    TestDevice cpu = TestDevice::cpu(1);
    OpContext context = cpu.context();
    std::vector<int32_t> starts(7), rows(3 * kRows), places(3 * kRows);
    std::vector<float> weights(3 * kRows);
    route_experts(context, {.rule = rule,
                            .logits = logits.view(),
                            .bias = nullptr,
                            .out = {starts, rows, weights, places},
                            .own = own});
    EXPECT_EQ(starts.back(), 3 * kRows);
    return places;
  };
  const auto all = places_of({}), first = places_of(ExpertRange{0, 3}),
             second = places_of(ExpertRange{3, 5});
  for (size_t i = 0; i < all.size(); ++i) {
    const bool shared = i % 3 == 2;
    EXPECT_TRUE(first[i] == all[i] || (first[i] == -1 && !shared)) << i;
    EXPECT_EQ(second[i], first[i] == -1 || shared ? all[i] : -1) << i;
  }
  EXPECT_NE(first, all);
  EXPECT_NE(second, all);
}

TEST(RouteExperts, BitsDependOnTheRowAlone) {
  const RouterRule rule{.experts = 60, .used = 4, .shared = SharedExpert::kGated};
  Rng rng(5);
  const TestMatrix logits(rng, 100, rule.logits());
  const Choices together = route(logits, rule);
  EXPECT_EQ(route(logits, rule, nullptr, 1), together);
  for (int64_t t = 0; t < 100; ++t) {
    std::vector<float> row;
    for (int64_t e = 0; e < rule.logits(); ++e) row.push_back(logits.at(t, e));
    EXPECT_EQ(route(row_of(row), rule)[0], together[static_cast<size_t>(t)]);
  }
}

// A faulty row is its own: it chooses experts that there are, each once, and comes out as NaN.
TEST(RouteExperts, NanAndInfinityStayInTheirRow) {
  const float nan = std::nanf(""), infinity = std::numeric_limits<float>::infinity();
  for (const int32_t groups_used : {1, 2}) {
    for (const auto scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
      const RouterRule rule{.experts = 6,
                            .used = 3,
                            .scores = scores,
                            .normalised = true,
                            .groups = 2,
                            .groups_used = groups_used};
      for (const std::vector<float>& row : {std::vector<float>{nan, nan, nan, nan, nan, nan},
                                            {1, nan, 2, nan, 3, 4},
                                            {infinity, 1, -infinity, 2, 3, infinity},
                                            {-infinity, -infinity, -infinity, 1, 2, 3}}) {
        EXPECT_EQ(route(row_of(row), rule)[0].size(), 3u);
      }
    }
  }
  for (const auto scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const bool normalised : {false, true}) {
      const RouterRule rule{.experts = 4, .used = 2, .scores = scores, .normalised = normalised};
      const Choices choices = route(row_of({nan, 1, 3, 2}), rule);
      ASSERT_EQ(choices[0].size(), 2u);
      for (const auto& [expert, weight] : choices[0]) {
        EXPECT_TRUE(expert == 2 || expert == 3) << expert;
        EXPECT_TRUE(std::isnan(weight)) << expert;
      }
    }
  }
}

}  // namespace
}  // namespace headrace::route_experts_test
