// Top-n-sigma, typical sampling, XTC and DRY against their definitions.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <map>
#include <numeric>
#include <vector>

#include "ops/op_fixture.h"
#include "ops/sampling/dry_penalty.h"
#include "ops/sampling/sample_row.h"

namespace headrace::sample_filters_test {
namespace {

std::vector<TokenId> kept(const std::vector<float>& logits, const SampleRow& row) {
  const auto vocabulary = static_cast<int64_t>(logits.size());
  std::vector<std::byte> memory(static_cast<size_t>(SampleScratch::bytes(vocabulary)) + 64);
  std::byte* const begin = memory.data() + (64 - reinterpret_cast<uintptr_t>(memory.data()) % 64);
  return kept_tokens(kLogitMathReference, SampleScratch::carve(begin, vocabulary), logits.data(),
                     vocabulary, row);
}

std::vector<double> softmax(const std::vector<float>& logits) {
  const double largest = *std::max_element(logits.begin(), logits.end());
  std::vector<double> weights;
  for (const float logit : logits) weights.push_back(std::exp(logit - largest));
  const double total = std::accumulate(weights.begin(), weights.end(), 0.0);
  for (double& weight : weights) weight /= total;
  return weights;
}

std::vector<TokenId> ascending(std::vector<TokenId> tokens) {
  std::sort(tokens.begin(), tokens.end());
  return tokens;
}

TEST(SampleFilters, TopNSigmaKeepsWhatIsWithinItsDeviations) {
  Rng rng(31);
  for (const float sigma : {0.5f, 1.0f, 2.0f}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> logits = random_floats(rng, 500, 3.0f);
      const double mean = std::accumulate(logits.begin(), logits.end(), 0.0) / 500;
      double squares = 0;
      for (const float logit : logits) squares += (logit - mean) * (logit - mean);
      const double largest = *std::max_element(logits.begin(), logits.end());
      const double bound = largest - sigma * std::sqrt(squares / 500);
      std::vector<TokenId> expected;
      for (size_t i = 0; i < logits.size(); ++i) {
        if (logits[i] >= bound) expected.push_back(static_cast<TokenId>(i));
      }
      EXPECT_EQ(kept(logits, {.top_n_sigma = sigma}), expected);
      EXPECT_EQ(kept(logits, {.temperature = 0.3f, .top_n_sigma = sigma}), expected);
    }
  }
}

// What is banned has no part in the deviation.
TEST(SampleFilters, TopNSigmaLooksAtFiniteLogits) {
  std::vector<float> logits = {1, 2, 3, 4};
  const std::vector<TokenId> banned = {0, 1};
  EXPECT_EQ(kept(logits, {.top_n_sigma = 1.9f, .banned = banned}), (std::vector<TokenId>{3}));
  EXPECT_EQ(kept(logits, {.top_n_sigma = 2.1f, .banned = banned}), (std::vector<TokenId>{2, 3}));
}

TEST(SampleFilters, TypicalKeepsTheNearestToTheEntropy) {
  Rng rng(32);
  for (const float p : {0.2f, 0.5f, 0.9f, 0.99f}) {
    for (int round = 0; round < 20; ++round) {
      const std::vector<float> logits = random_floats(rng, 300, 2.5f);
      const std::vector<double> weights = softmax(logits);
      double entropy = 0;
      for (const double weight : weights) entropy -= weight * std::log(weight);
      std::vector<TokenId> order(logits.size());
      std::iota(order.begin(), order.end(), 0);
      const auto distance = [&](TokenId token) {
        return std::abs(-std::log(weights[static_cast<size_t>(token)]) - entropy);
      };
      std::stable_sort(order.begin(), order.end(),
                       [&](TokenId a, TokenId b) { return distance(a) < distance(b); });
      std::vector<TokenId> expected;
      double reached = 0;
      for (const TokenId token : order) {
        expected.push_back(token);
        reached += weights[static_cast<size_t>(token)];
        if (reached >= p) break;
      }
      EXPECT_EQ(kept(logits, {.typical_p = p}), ascending(expected)) << p;
    }
  }
}

TEST(SampleFilters, XtcLeavesTheLeastOfTheTop) {
  // 0.5, 0.3, 0.15, 0.05
  const std::vector<float> logits = {std::log(0.3f), std::log(0.05f), std::log(0.5f),
                                     std::log(0.15f)};
  const auto with = [&](float threshold) {
    return kept(logits, {.xtc_probability = 1.0f, .xtc_threshold = threshold});
  };
  EXPECT_EQ(with(0.1f), (std::vector<TokenId>{1, 3}));        // three are above it
  EXPECT_EQ(with(0.2f), (std::vector<TokenId>{0, 1, 3}));     // two
  EXPECT_EQ(with(0.4f), (std::vector<TokenId>{0, 1, 2, 3}));  // one: nothing goes
  EXPECT_EQ(with(0.9f), (std::vector<TokenId>{0, 1, 2, 3}));
  // As often as it says.
  int excluded = 0;
  for (uint64_t position = 0; position < 4000; ++position) {
    excluded +=
        kept(logits,
             {.xtc_probability = 0.25f, .xtc_threshold = 0.1f, .seed = 3, .position = position})
            .size() == 2;
  }
  EXPECT_NEAR(excluded, 1000, 100);
}

// By looking at every pair of places.
std::map<TokenId, int32_t> repeated_by_definition(const DryPenalty& dry,
                                                  std::vector<TokenId> history) {
  if (dry.last_tokens >= 0 && history.size() > static_cast<size_t>(dry.last_tokens)) {
    history.erase(history.begin(), history.end() - dry.last_tokens);
  }
  const auto breaks = [&](TokenId token) {
    return dry.breakers && std::count(dry.breakers->begin(), dry.breakers->end(), token) > 0;
  };
  std::map<TokenId, int32_t> lengths;
  const auto n = static_cast<int64_t>(history.size());
  for (int64_t next = 1; next < n; ++next) {
    int64_t length = 0;
    while (length < next &&
           history[static_cast<size_t>(next - 1 - length)] ==
               history[static_cast<size_t>(n - 1 - length)] &&
           !breaks(history[static_cast<size_t>(n - 1 - length)])) {
      ++length;
    }
    const TokenId token = history[static_cast<size_t>(next)];
    if (length == 0 || breaks(token)) continue;
    lengths[token] = std::max(lengths[token], static_cast<int32_t>(length));
  }
  return lengths;
}

TEST(SampleFilters, DryFindsTheLongestCopies) {
  Rng rng(33);
  for (int round = 0; round < 300; ++round) {
    DryPenalty dry{.multiplier = 1};
    if (rng.below(2) == 0) {
      dry.breakers = std::make_shared<const std::vector<TokenId>>(std::vector<TokenId>{1, 3});
    }
    if (rng.below(3) == 0) dry.last_tokens = static_cast<int32_t>(rng.below(40));
    std::vector<TokenId> history;
    const size_t kinds = 2 + rng.below(5);
    for (size_t i = rng.below(80); i > 0; --i) {
      history.push_back(static_cast<TokenId>(rng.below(kinds)));
    }
    const auto found = repeated_lengths(dry, history);
    EXPECT_EQ((std::map<TokenId, int32_t>(found.begin(), found.end())),
              repeated_by_definition(dry, history));
  }
}

TEST(SampleFilters, DryTakesMoreFromLongerRepetitions) {
  const std::vector<float> logits(10, 0.0f);
  const std::vector<TokenId> history = {5, 6, 7, 8, 2, 6, 7, 9, 1, 5, 6, 7};
  const DryPenalty dry{.multiplier = 0.5f, .base = 2.0f, .allowed_length = 2};
  // 5 6 7 came before 8, 6 7 before 9: 0.5 * 2^1 and 0.5 * 2^0 off.
  std::map<TokenId, float> taken;
  for_each_repeating(dry, history, [&](TokenId token, float off) { taken[token] = off; });
  ASSERT_EQ(taken.size(), 2u);
  EXPECT_FLOAT_EQ(taken[8], 1.0f);
  EXPECT_FLOAT_EQ(taken[9], 0.5f);
  const auto tokens = kept(logits, {.min_p = 0.7f, .dry = &dry, .history = history});
  EXPECT_EQ(tokens, (std::vector<TokenId>{0, 1, 2, 3, 4, 5, 6, 7}));
}

// A float's range bounds what a long repetition costs: no logit becomes -inf of it.
TEST(SampleFilters, DryStaysFinite) {
  const std::vector<TokenId> history(5000, 4);
  const DryPenalty dry{.multiplier = 100.0f, .base = 100.0f};
  for_each_repeating(dry, history, [&](TokenId token, float off) {
    EXPECT_EQ(token, 4);
    EXPECT_TRUE(std::isfinite(off));
  });
}

}  // namespace
}  // namespace headrace::sample_filters_test
