// route_experts on CUDA against the CPU: the same lists, number for number, and weights as near as
// two exponentials are.
#include <gtest/gtest.h>

#include <cmath>
#include <limits>
#include <set>
#include <string>
#include <vector>

#include "ops/cuda_fixture.h"
#include "ops/rows/route_experts.h"

namespace headrace::route_experts_cuda_test {
namespace {

struct RoutedLists {
  RoutedLists(int64_t rows, const RouterRule& rule)
      : starts(static_cast<size_t>(rule.networks()) + 1, -7),
        rows(static_cast<size_t>(rows * rule.networks_of_row()), -7),
        places(this->rows.size(), -7),
        weights(this->rows.size(), -7.0f) {}

  std::vector<int32_t> starts, rows, places;
  std::vector<float> weights;
};

// Of an odd number of rows the places of half of the experts are told, else those of all.
std::optional<ExpertRange> own_of(const RouterRule& rule, int64_t rows) {
  if (rows % 2 == 0) return {};
  return ExpertRange{rule.experts / 4, rule.experts / 4 + rule.experts / 2};
}

// Likewise the experts have scales.
std::vector<float> scales_of(const RouterRule& rule, int64_t rows) {
  std::vector<float> scales;
  for (int32_t e = 0; rows % 2 == 1 && e < rule.experts; ++e) {
    scales.push_back(0.5f + static_cast<float>(e) / static_cast<float>(rule.experts));
  }
  return scales;
}

RoutedLists routed_on_cpu(std::vector<float>& logits, const RouterRule& rule, const float* bias) {
  TestDevice cpu = TestDevice::cpu(2);
  OpContext context = cpu.context();
  const int64_t rows = std::ssize(logits) / rule.logits();
  RoutedLists lists(rows, rule);
  const std::vector<float> scales = scales_of(rule, rows);
  route_experts(context, {.rule = rule,
                          .logits = host_view(logits, rows, rule.logits()),
                          .bias = bias,
                          .out = {lists.starts, lists.rows, lists.weights, lists.places},
                          .own = own_of(rule, rows),
                          .scales = scales.empty() ? nullptr : scales.data()});
  return lists;
}

// By every kernel that takes it.
template <class Expect>
void for_each_routing(TestDevice& cuda, const std::vector<float>& logits, const RouterRule& rule,
                      const std::vector<float>& bias, const Expect& expect) {
  const int64_t rows = std::ssize(logits) / rule.logits();
  const CudaMatrix on_device(cuda, DType::kF32, rows, rule.logits(), 3, &logits);
  const CudaArray<float> bias_on(cuda, bias.empty() ? std::vector<float>{0.0f} : bias);
  const std::vector<float> scales = scales_of(rule, rows);
  const CudaArray<float> scales_on(cuda, scales.empty() ? std::vector<float>{0.0f} : scales);
  for (const auto& kernel : route_experts_kernels().all()) {
    const RoutedLists empty(rows, rule);
    const CudaArray<int32_t> starts(cuda, empty.starts), listed(cuda, empty.rows),
        places(cuda, empty.places);
    const CudaArray<float> weights(cuda, empty.weights);
    const RouteExpertsArgs args{
        .rule = rule,
        .logits = on_device.view(),
        .bias = bias.empty() ? nullptr : bias_on.data(),
        .out = {starts.span(), listed.span(), weights.span(), places.span()},
        .own = own_of(rule, rows),
        .scales = scales.empty() ? nullptr : scales_on.data()};
    if (!kernel.supports(cuda.device().traits(), args)) continue;
    SCOPED_TRACE(std::string(kernel.name) + " of " + std::to_string(rows) + " rows");
    OpContext context = cuda.context();
    kernel.run(context, args);
    RoutedLists lists = empty;
    lists.starts = starts.read();
    lists.rows = listed.read();
    lists.places = places.read();
    lists.weights = weights.read();
    expect(lists);
  }
}

void expect_as_cpu(TestDevice& cuda, std::vector<float> logits, const RouterRule& rule,
                   const std::vector<float>& bias = {}) {
  const RoutedLists expected = routed_on_cpu(logits, rule, bias.empty() ? nullptr : bias.data());
  for_each_routing(cuda, logits, rule, bias, [&](const RoutedLists& lists) {
    EXPECT_EQ(lists.starts, expected.starts);
    EXPECT_EQ(lists.rows, expected.rows);
    EXPECT_EQ(lists.places, expected.places);
    expect_near(lists.weights, expected.weights, 1e-6, 1e-9);
  });
}

std::string described(const RouterRule& rule) {
  return "E" + std::to_string(rule.experts) + " k" + std::to_string(rule.used) + " groups " +
         std::to_string(rule.groups_used) + "/" + std::to_string(rule.groups) + " shared " +
         std::to_string(static_cast<int>(rule.shared));
}

TEST(RouteExpertsCuda, IsTheCpusForEveryRule) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t rows : {1, 7, 16, 17, 64, 256, 1000}) {
    for (const RouterRule& rule : std::vector<RouterRule>{
             {.experts = 4, .used = 1},
             {.experts = 8, .used = 2, .normalised = true},
             {.experts = 60, .used = 4, .shared = SharedExpert::kGated},
             {.experts = 128, .used = 8, .normalised = true},
             {.experts = 128, .used = 6, .scale = 2.5f, .shared = SharedExpert::kWhole},
             {.experts = 256,
             .used = 8,
             .scores = RouterScores::kSigmoid,
             .normalised = true,
             .scale = 2.5f,
             .groups = 8,
             .groups_used = 4,
             .shared = SharedExpert::kWhole},
             {.experts = 512, .used = 10, .normalised = true},
             {.experts = 1024, .used = 40, .groups = 64, .groups_used = 9},
             {.experts = 11, .used = 11, .scores = RouterScores::kSigmoid},
             {.experts = 16, .used = 2, .scores = RouterScores::kSparseMixer, .tolerance = 0.01f},
             {.experts = 2, .used = 2, .scores = RouterScores::kSparseMixer, .tolerance = 0.3f},
             {.experts = 70,
             .used = 2,
             .scores = RouterScores::kSparseMixer,
             .tolerance = 0.5f,
             .scale = 1.5f,
             .shared = SharedExpert::kWhole}}) {
      SCOPED_TRACE(described(rule));
      Rng rng(static_cast<uint64_t>(rows));
      const std::vector<float> logits = random_floats(rng, rows * rule.logits(), 2.0f);
      expect_as_cpu(cuda, logits, rule);
      if (rule.scores != RouterScores::kSparseMixer) {
        expect_as_cpu(cuda, logits, rule, random_floats(rng, rule.experts, 0.3f));
      }
      if (testing::Test::HasFailure()) return;
    }
  }
}

// Biases that leave many scores below 0.
TEST(RouteExpertsCuda, ExpertsOfOtherGroupsMayCountAsZero) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const RouterRule rule{.experts = 256,
                        .used = 24,
                        .scores = RouterScores::kSigmoid,
                        .normalised = true,
                        .groups = 8,
                        .groups_used = 1,
                        .others_are_zero = true};
  for (const int64_t rows : {1, 17, 300}) {
    Rng rng(static_cast<uint64_t>(rows));
    const std::vector<float> logits = random_floats(rng, rows * rule.experts, 2.0f);
    expect_as_cpu(cuda, logits, rule, random_floats(rng, rule.experts, 2.0f));
  }
}

TEST(RouteExpertsCuda, ManyRows) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const RouterRule rule{.experts = 128, .used = 8, .normalised = true};
  Rng rng(8);
  expect_as_cpu(cuda, random_floats(rng, 8192 * 128, 2.0f), rule);
  // All choose the same: one list of all rows.
  std::vector<float> alike(size_t{3000} * 128);
  for (size_t i = 0; i < alike.size(); ++i) alike[i] = static_cast<float>(i % 128 % 16);
  expect_as_cpu(cuda, alike, rule);
}

// Few values, so that many are equal; scores of a sigmoid near 1, which floats do not tell apart.
TEST(RouteExpertsCuda, OfEqualScoresTheFirst) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const auto scores : {RouterScores::kSoftmax, RouterScores::kSigmoid}) {
    for (const int32_t groups : {1, 8}) {
      const RouterRule rule{.experts = 64,
                            .used = 5,
                            .scores = scores,
                            .normalised = true,
                            .groups = groups,
                            .groups_used = groups == 1 ? 1 : 3};
      Rng rng(9);
      std::vector<float> logits(size_t{200} * 64);
      for (float& logit : logits) logit = 18.0f + static_cast<float>(rng.below(4));
      expect_as_cpu(cuda, logits, rule);
    }
  }
  // Values around 0, so that all but the best are as far as can be, or divided by 0.
  const RouterRule mixer{
      .experts = 40, .used = 2, .scores = RouterScores::kSparseMixer, .tolerance = 0.25f};
  Rng rng(11);
  std::vector<float> logits(size_t{200} * 40);
  for (float& logit : logits) logit = static_cast<float>(rng.below(4)) - 2.0f;
  expect_as_cpu(cuda, logits, mixer);
}

TEST(RouteExpertsCuda, NanMakesTheWeightsOfASparseMixerNan) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const RouterRule rule{
      .experts = 9, .used = 2, .scores = RouterScores::kSparseMixer, .tolerance = 0.1f};
  for (const int64_t rows : {1, 2, 30}) {
    Rng rng(12);
    std::vector<float> faulty = random_floats(rng, rows * 9);
    faulty[static_cast<size_t>(rows - 1) * 9] = std::nanf("");
    for_each_routing(cuda, faulty, rule, {}, [&](const RoutedLists& lists) {
      ASSERT_EQ(lists.starts.back(), rows * 2);
      for (size_t i = 0; i < lists.rows.size(); ++i) {
        EXPECT_EQ(std::isnan(lists.weights[i]), lists.rows[i] == rows - 1) << i;
      }
    });
  }
}

// A faulty row is its own: it takes experts that there are, each once, and its weights are NaN.
TEST(RouteExpertsCuda, NanAndInfinityStayInTheirRow) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  const float infinity = std::numeric_limits<float>::infinity();
  for (const int64_t rows : {9, 40}) {
    for (const int32_t groups_used : {1, 2}) {
      const RouterRule rule{
          .experts = 12, .used = 4, .normalised = true, .groups = 2, .groups_used = groups_used};
      Rng rng(10);
      std::vector<float> faulty = random_floats(rng, rows * 12);
      for (size_t e = 0; e < 12; ++e) faulty[24 + e] = std::nanf("");
      faulty[5 * 12 + 3] = std::nanf("");
      for (size_t e = 0; e < 12; ++e) faulty[7 * 12 + e] = -infinity;
      for_each_routing(cuda, faulty, rule, {}, [&](const RoutedLists& lists) {
        ASSERT_EQ(lists.starts.back(), rows * 4);
        std::vector<std::set<int32_t>> experts(static_cast<size_t>(rows));
        for (size_t e = 0; e + 1 < lists.starts.size(); ++e) {
          for (int32_t i = lists.starts[e]; i < lists.starts[e + 1]; ++i) {
            const int32_t row = lists.rows[static_cast<size_t>(i)];
            ASSERT_TRUE(row >= 0 && row < rows);
            experts[static_cast<size_t>(row)].insert(static_cast<int32_t>(e));
            const bool is_nan = std::isnan(lists.weights[static_cast<size_t>(i)]);
            EXPECT_EQ(is_nan, row == 2 || row == 5 || row == 7) << row;
          }
        }
        for (const auto& chosen : experts) EXPECT_EQ(chosen.size(), 4u);
      });
    }
  }
}

}  // namespace
}  // namespace headrace::route_experts_cuda_test
