#include "ops/sampling/sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <functional>
#include <map>
#include <numeric>
#include <vector>

#include "ops/op_fixture.h"
#include "ops/sampling/sample_row.h"

namespace headrace::sample_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

struct NamedMath {
  std::string_view name;
  const LogitMath* math;
};

// What this machine can run.
std::vector<NamedMath> all_math() {
  std::vector<NamedMath> all = {{"reference", &kLogitMathReference}};
  const CpuFeatures cpu = CpuFeatures::detect();
  if (cpu.avx2) all.push_back({"avx2", &kLogitMathAvx2});
  if (cpu.avx512) all.push_back({"avx512", &kLogitMathAvx512});
  return all;
}

// Scratch memory for one row.
class Scratch {
 public:
  explicit Scratch(int64_t vocabulary)
      : memory_(static_cast<size_t>(SampleScratch::bytes(vocabulary)) + 64),
        scratch_(SampleScratch::carve(
            memory_.data() + (64 - reinterpret_cast<uintptr_t>(memory_.data()) % 64), vocabulary)) {
  }
  operator const SampleScratch&() const { return scratch_; }

 private:
  std::vector<std::byte> memory_;
  SampleScratch scratch_;
};

// The definition, by sorting, in double.
struct Weighted {
  TokenId token;
  float value;
  double weight;
};

std::vector<float> adjusted_by_definition(std::vector<float> values, const SampleRow& row) {
  std::map<TokenId, int32_t> output;
  for (const TokenCount& c : row.output) output[c.token] = c.count;
  std::vector<bool> seen(values.size(), false);
  for (const TokenId t : row.prompt) seen[static_cast<size_t>(t)] = true;
  for (const auto& [t, count] : output) seen[static_cast<size_t>(t)] = true;
  for (size_t i = 0; i < values.size(); ++i) {
    if (seen[i]) {
      values[i] =
          values[i] > 0 ? values[i] / row.repetition_penalty : values[i] * row.repetition_penalty;
    }
  }
  for (const auto& [t, count] : output) {
    values[static_cast<size_t>(t)] -=
        row.frequency_penalty * static_cast<float>(count) + row.presence_penalty;
  }
  for (const auto& [t, bias] : row.logit_bias) values[static_cast<size_t>(t)] += bias;
  for (const TokenId t : row.banned) values[static_cast<size_t>(t)] = -kInfinity;
  return values;
}

void keep_prefix(std::vector<Weighted>& sorted, double p) {
  double total = 0, reached = 0;
  for (const Weighted& w : sorted) total += w.weight;
  for (size_t i = 0; i < sorted.size(); ++i) {
    reached += sorted[i].weight;
    if (reached >= p * total) {
      sorted.resize(i + 1);
      return;
    }
  }
}

std::vector<Weighted> kept_by_definition(const std::vector<float>& logits, const SampleRow& row) {
  const std::vector<float> values = adjusted_by_definition(logits, row);
  const float largest = *std::max_element(values.begin(), values.end());
  std::vector<Weighted> all;
  for (size_t i = 0; i < values.size(); ++i) {
    const double weight = std::exp((double{values[i]} - largest) / row.temperature);
    if (weight > 1e-37 && weight >= row.min_p)
      all.push_back({static_cast<TokenId>(i), values[i], weight});
  }
  std::stable_sort(all.begin(), all.end(),
                   [](const Weighted& a, const Weighted& b) { return a.value > b.value; });
  if (row.top_k > 0 && all.size() > static_cast<size_t>(row.top_k)) {
    all.resize(static_cast<size_t>(row.top_k));
  }
  if (row.top_p < 1.0f) keep_prefix(all, row.top_p);
  std::sort(all.begin(), all.end(),
            [](const Weighted& a, const Weighted& b) { return a.token < b.token; });
  return all;
}

std::vector<float> random_logits(Rng& rng, int64_t vocabulary) {
  std::vector<float> logits = random_floats(rng, vocabulary, 3.0f);
  // Ties, and some rows with a few clear favourites.
  for (size_t i = 0; i + 7 < logits.size(); i += 5) logits[i + 7] = logits[i];
  if (rng.below(2) == 0) {
    for (int i = 0; i < 3; ++i) logits[rng.below(logits.size())] += 8.0f;
  }
  return logits;
}

template <class T>
T pick(Rng& rng, std::initializer_list<T> values) {
  return values.begin()[rng.below(values.size())];
}

TEST(Sample, KeepsExactlyTheSetsThatSortingGives) {
  Rng rng(21);
  for (const int64_t vocabulary : {1, 5, 63, 64, 65, 1000, 5003}) {
    const Scratch scratch(vocabulary);
    for (int round = 0; round < 60; ++round) {
      const std::vector<float> logits = random_logits(rng, vocabulary);
      SampleRow row;
      row.temperature = pick(rng, {1.0f, 0.3f, 1.7f});
      row.top_k = pick(rng, {0, 1, 2, 40, 200, 100000});
      row.top_p = pick(rng, {1.0f, 0.95f, 0.5f, 0.01f, 0.999f});
      row.min_p = pick(rng, {0.0f, 0.05f, 0.3f, 1.0f});
      std::vector<TokenId> expected;
      for (const Weighted& w : kept_by_definition(logits, row)) expected.push_back(w.token);
      for (const auto& [name, math] : all_math()) {
        EXPECT_EQ(kept_tokens(*math, scratch, logits.data(), vocabulary, row), expected)
            << name << " V " << vocabulary << " round " << round << " k " << row.top_k << " p "
            << row.top_p << " min-p " << row.min_p << " T " << row.temperature;
      }
    }
  }
}

TEST(Sample, AppliesPenaltiesBiasAndBansByDefinition) {
  Rng rng(22);
  constexpr int64_t kVocabulary = 300;
  const Scratch scratch(kVocabulary);
  for (int round = 0; round < 100; ++round) {
    const std::vector<float> logits = random_logits(rng, kVocabulary);
    std::vector<TokenId> prompt, banned;
    std::vector<TokenCount> output;
    std::vector<std::pair<TokenId, float>> bias;
    const auto any = [&] { return static_cast<TokenId>(rng.below(kVocabulary)); };
    for (int i = 0; i < 50; ++i) prompt.push_back(any());
    for (TokenId t = 0; t < 300; t += 7)
      output.push_back({t, static_cast<int32_t>(rng.between(1, 5))});
    for (TokenId t = 3; t < 300; t += 50) bias.push_back({t, random_normal(rng, 5.0f)});
    for (int i = 0; i < 20; ++i) banned.push_back(any());
    SampleRow row;
    row.top_p = 0.9f;
    row.repetition_penalty = pick(rng, {1.0f, 1.3f, 0.8f});
    row.presence_penalty = pick(rng, {0.0f, 0.5f, -1.0f});
    row.frequency_penalty = pick(rng, {0.0f, 0.7f, -0.2f});
    row.prompt = prompt;
    row.output = output;
    row.logit_bias = bias;
    row.banned = banned;
    std::vector<TokenId> expected;
    for (const Weighted& w : kept_by_definition(logits, row)) expected.push_back(w.token);
    for (const auto& [name, math] : all_math()) {
      EXPECT_EQ(kept_tokens(*math, scratch, logits.data(), kVocabulary, row), expected) << name;
    }
  }
}

// One row of logits seen `count` times.
ConstTensorView repeated(const std::vector<float>& logits, int64_t count) {
  return {reinterpret_cast<const std::byte*>(logits.data()), DType::kF32,
          Shape{count, static_cast<int64_t>(logits.size())}, 0};
}

// P(chi-square with k degrees of freedom > x), by Wilson and Hilferty.
double chi_square_tail(double x, double k) {
  const double z = (std::cbrt(x / k) - (1 - 2 / (9 * k))) / std::sqrt(2 / (9 * k));
  return 0.5 * std::erfc(z / std::sqrt(2.0));
}

void expect_distribution(const SampleRow& parameters, const std::vector<float>& logits) {
  constexpr int64_t kDraws = 1'000'000, kBatch = 1000;
  TestDevice device = TestDevice::cpu(2);
  std::vector<double> counts(logits.size(), 0.0);
  std::vector<SampleRow> rows(kBatch, parameters);
  std::vector<SampleResult> results(kBatch);
  for (int64_t first = 0; first < kDraws; first += kBatch) {
    for (int64_t i = 0; i < kBatch; ++i)
      rows[static_cast<size_t>(i)].position = static_cast<uint64_t>(first + i);
    OpContext context = device.context();
    sample(context, {repeated(logits, kBatch), rows, results});
    for (const SampleResult& r : results) counts[static_cast<size_t>(r.token)] += 1;
  }
  const std::vector<Weighted> kept = kept_by_definition(logits, parameters);
  double total = 0, chi_square = 0, seen = 0;
  for (const Weighted& w : kept) total += w.weight;
  for (const Weighted& w : kept) {
    const double expected = kDraws * w.weight / total;
    const double count = counts[static_cast<size_t>(w.token)];
    chi_square += (count - expected) * (count - expected) / expected;
    seen += count;
  }
  EXPECT_EQ(seen, kDraws) << "a token outside the kept set was drawn";
  EXPECT_GT(chi_square_tail(chi_square, static_cast<double>(kept.size()) - 1), 1e-4) << chi_square;
}

TEST(Sample, DrawsFollowTheWholeDistribution) {
  Rng rng(23);
  expect_distribution({.temperature = 1.2f, .seed = 5}, random_floats(rng, 130, 1.5f));
}

TEST(Sample, DrawsFollowTheFilteredDistribution) {
  Rng rng(24);
  expect_distribution({.temperature = 0.9f, .top_k = 40, .top_p = 0.9f, .seed = 6},
                      random_floats(rng, 130, 1.5f));
}

TEST(Sample, GreedyTakesTheLowestIdOfTheLargest) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  std::vector<float> logits(1000, -1.0f);
  logits[700] = logits[300] = logits[301] = 2.0f;
  const std::vector<SampleRow> rows = {{.temperature = 0.0f}};
  std::vector<SampleResult> results(1);
  for (const auto& kernel : sample_kernels().all()) {
    const SampleArgs args{repeated(logits, 1), rows, results};
    if (!kernel.supports(device.device().traits(), args)) continue;
    kernel.run(context, args);
    EXPECT_EQ(results[0].token, 300) << kernel.name;
  }
}

TEST(Sample, ExtremeTemperaturesAreNoFault) {
  TestDevice device = TestDevice::cpu(1);
  Rng rng(25);
  std::vector<float> logits = random_floats(rng, 500, 30.0f);
  logits[123] = 1000.0f;
  logits[200] = -kInfinity;
  for (const float temperature : {1e-45f, 1e-38f, 1e-20f, 1e-6f, 1e30f, 3e38f}) {
    for (const float top_p : {1.0f, 0.9f}) {
      const std::vector<SampleRow> rows = {{.temperature = temperature, .top_p = top_p, .seed = 1}};
      std::vector<SampleResult> results(1);
      OpContext context = device.context();
      sample(context, {repeated(logits, 1), rows, results});
      EXPECT_FALSE(results[0].fault) << temperature;
      if (temperature < 1) {
        EXPECT_EQ(results[0].token, 123) << temperature;
      }
      EXPECT_NE(results[0].token, 200);
    }
  }
}

TEST(Sample, AFaultStaysInItsRow) {
  constexpr int64_t kVocabulary = 777;
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(26);
  TestMatrix logits(rng, 6, kVocabulary, 2.0f), clean = logits;
  logits.at(1, 776) = std::nanf("");
  logits.at(2, 0) = kInfinity;
  for (int64_t i = 0; i < kVocabulary; ++i) logits.at(4, i) = -kInfinity;
  for (const auto& kernel : sample_kernels().all()) {
    std::vector<SampleRow> rows(6, SampleRow{.top_p = 0.9f, .seed = 9, .logprobs = 3});
    std::vector<SampleResult> results(6), expected(6);
    const SampleArgs probe{logits.view(), rows, results};
    if (!kernel.supports(device.device().traits(), probe)) continue;
    kernel.run(context, probe);
    kernel.run(context, {clean.view(), rows, expected});
    for (size_t i = 0; i < 6; ++i) {
      const bool bad = i == 1 || i == 2 || i == 4;
      EXPECT_EQ(results[i].fault, bad) << kernel.name << " row " << i;
      EXPECT_EQ(results[i].token, bad ? -1 : expected[i].token);
      EXPECT_TRUE(bad || same_bits(&results[i].logprob, &expected[i].logprob, 1));
    }
  }
}

TEST(Sample, BanningEverythingIsAFault) {
  TestDevice device = TestDevice::cpu(1);
  OpContext context = device.context();
  const std::vector<float> logits = {1, 2, 3};
  const std::vector<TokenId> banned = {0, 1, 2};
  const std::vector<SampleRow> rows = {{.banned = banned}};
  std::vector<SampleResult> results(1);
  sample(context, {repeated(logits, 1), rows, results});
  EXPECT_TRUE(results[0].fault);
}

TEST(Sample, ADrawDependsOnSeedChoiceAndPositionAlone) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(27);
  const std::vector<float> logits = random_floats(rng, 2000, 0.5f);
  std::vector<SampleRow> rows;
  for (uint64_t i = 0; i < 32; ++i) {
    rows.push_back({.seed = i % 2, .choice = i / 2 % 2, .position = i / 4});
  }
  std::vector<SampleResult> together(32), alone(1);
  sample(context, {repeated(logits, 32), rows, together});
  std::vector<TokenId> tokens;
  for (size_t i = 0; i < 32; ++i) {
    sample(context, {repeated(logits, 1), {&rows[i], 1}, alone});
    EXPECT_EQ(alone[0].token, together[i].token);
    tokens.push_back(alone[0].token);
  }
  std::sort(tokens.begin(), tokens.end());
  EXPECT_GT(std::unique(tokens.begin(), tokens.end()) - tokens.begin(),
            25);  // not all the same draw
}

TEST(TokenLogprobs, AreThePlainSoftmaxBestFirst) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(28);
  for (const int64_t vocabulary : {1, 17, 200, 49152}) {
    std::vector<float> logits = random_floats(rng, vocabulary, 4.0f);
    if (vocabulary > 100) logits[90] = logits[50] = 25.0f;  // a tie at the top
    const double largest = *std::max_element(logits.begin(), logits.end());
    double total = 0;
    for (const float x : logits) total += std::exp(x - largest);
    const std::vector<TokenId> tokens = {static_cast<TokenId>(vocabulary / 2)};
    for (const auto& kernel : token_logprobs_kernels().all()) {
      std::vector<SampleResult> results(1);
      const TokenLogprobsArgs args{repeated(logits, 1), tokens, 20, results};
      if (!kernel.supports(device.device().traits(), args)) continue;
      kernel.run(context, args);
      const SampleResult& r = results[0];
      const auto expected = [&](TokenId t) {
        return logits[static_cast<size_t>(t)] - largest - std::log(total);
      };
      EXPECT_EQ(r.token, tokens[0]);
      EXPECT_NEAR(r.logprob, expected(r.token), 2e-6);
      ASSERT_EQ(r.top.size(), static_cast<size_t>(std::min<int64_t>(20, vocabulary)));
      std::vector<TokenId> order(static_cast<size_t>(vocabulary));
      std::iota(order.begin(), order.end(), 0);
      std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
        return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
      });
      for (size_t i = 0; i < r.top.size(); ++i) {
        EXPECT_EQ(r.top[i].token, order[i]) << kernel.name;
        EXPECT_NEAR(r.top[i].logprob, expected(order[i]), 2e-6);
      }
    }
  }
}

// What sampling reports is what an echo of the same token reports, whatever was done to choose it.
TEST(TokenLogprobs, AreTheBitsThatSamplingReports) {
  TestDevice device = TestDevice::cpu(2);
  OpContext context = device.context();
  Rng rng(29);
  TestMatrix logits(rng, 40, 3001, 3.0f);
  const std::vector<TokenId> prompt = {1, 5, 9, 1};
  std::vector<SampleRow> rows(
      40, SampleRow{.top_k = 50, .repetition_penalty = 1.5f, .prompt = prompt, .logprobs = 5});
  for (size_t i = 0; i < rows.size(); i += 2) rows[i].repetition_penalty = 1.0f;
  for (size_t i = 0; i < rows.size(); i += 3) rows[i].temperature = 0.0f;
  std::vector<SampleResult> sampled(40), echoed(40);
  sample(context, {logits.view(), rows, sampled});
  std::vector<TokenId> tokens;
  for (const SampleResult& r : sampled) tokens.push_back(r.token);
  token_logprobs(context, {logits.view(), tokens, 5, echoed});
  for (size_t i = 0; i < 40; ++i) {
    EXPECT_TRUE(same_bits(&sampled[i].logprob, &echoed[i].logprob, 1));
    ASSERT_EQ(sampled[i].top.size(), echoed[i].top.size());
    for (size_t k = 0; k < 5; ++k) {
      EXPECT_EQ(sampled[i].top[k].token, echoed[i].top[k].token);
      EXPECT_TRUE(same_bits(&sampled[i].top[k].logprob, &echoed[i].top[k].logprob, 1));
    }
  }
}

// The exp of every instruction set, through the weights: within 2 units in the last place.
TEST(LogitMath, ExpIsWithinTwoUlp) {
  std::vector<float> x;
  for (float v = 0.0f; v > -87.0f; v -= 0.00137f) x.push_back(v);
  const auto count = static_cast<int64_t>(x.size());
  std::vector<float> weights(x.size()), sums(x.size() / 64 + 1);
  for (const auto& [name, math] : all_math()) {
    math->exp_weights(x.data(), count, 0.0f, 1.0f, weights.data(), sums.data());
    double worst = 0;
    for (size_t i = 0; i < x.size(); ++i) {
      const double exact = std::exp(double{x[i]});
      const double ulp = std::ldexp(1.0, std::ilogb(exact) - 23);
      worst = std::max(worst, std::abs(weights[i] - exact) / ulp);
    }
    EXPECT_LE(worst, 2.0) << name;
    EXPECT_EQ(weights[0], 1.0f);
    const float edges[] = {-kInfinity, -1e30f, -100.0f, -88.0f};
    math->exp_weights(edges, 4, 0.0f, 1.0f, weights.data(), sums.data());
    for (int i = 0; i < 4; ++i) EXPECT_LE(weights[static_cast<size_t>(i)], 1.2e-38f) << name;
  }
}

}  // namespace
}  // namespace headrace::sample_test
