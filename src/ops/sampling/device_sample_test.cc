// Sampling on CUDA against the CPU's definition: the kept set, the distribution, the order of
// penalties, biases, bans and masks, log-probabilities, faults. And the slot state that feeds it.
#include "ops/sampling/device_sample.h"

#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <limits>
#include <map>
#include <numeric>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/token_constraint.h"
#include "ops/cuda_fixture.h"
#include "ops/sampling/device_sample_fixture.h"
#include "ops/sampling/sample.h"
#include "ops/sampling/slot_state.h"
#include "tensor/half.h"

namespace headrace::device_sample_test {
namespace {

constexpr float kInfinity = std::numeric_limits<float>::infinity();

TEST(DeviceSample, GreedyTakesTheLowestIdOfTheLargest) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {1, 3, 1000, 49152, 128256}) {
    SampleCall call{.vocabulary = vocabulary};
    Rng rng(1);
    std::vector<TokenId> expected;
    for (int i = 0; i < 5; ++i) {
      std::vector<float> logits = random_floats(rng, vocabulary);
      if (vocabulary > 900) logits[700] = logits[300] = logits[301] = 9.0f;
      expected.push_back(
          static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin()));
      call.add(logits, {.temperature = 0.0f});
    }
    call.run(cuda);
    for (size_t i = 0; i < expected.size(); ++i) {
      EXPECT_EQ(call.results[i].token, expected[i]);
      EXPECT_EQ(call.last_tokens[i], expected[i]);
      EXPECT_EQ(call.results[i].fault, 0);
    }
  }
}

// About one token of `every` in random places, and `always`.
std::vector<uint32_t> random_mask(Rng& rng, int64_t vocabulary, uint64_t every, TokenId always) {
  std::vector<uint32_t> mask(static_cast<size_t>(token_mask_words(vocabulary)));
  for (int64_t token = 0; token < vocabulary; ++token) {
    if (token != always && rng.below(every) != 0) continue;
    mask[static_cast<size_t>(token / 32)] |= 1u << (token % 32);
  }
  return mask;
}

// What is drawn is in the reference's kept set, and nearly always the reference's own token (sums
// are rounded in another way, so that a draw at the edge of a token may fall on its neighbour).
void expect_draws_of_the_reference(TestDevice& cuda, int64_t vocabulary, float sigma,
                                   const SampleRow& parameters, uint64_t seed) {
  SCOPED_TRACE(testing::Message() << "V " << vocabulary << " sigma " << sigma << " T "
                                  << parameters.temperature << " k " << parameters.top_k << " p "
                                  << parameters.top_p << " min " << parameters.min_p);
  Rng rng(seed);
  SampleReference reference(vocabulary);
  SampleCall call{.vocabulary = vocabulary};
  std::vector<TokenId> expected;
  std::vector<std::vector<TokenId>> kept;
  for (uint64_t i = 0; i < 24; ++i) {
    const std::vector<float> logits = random_floats(rng, vocabulary, sigma);
    SampleRow row = parameters;
    row.seed = seed;
    row.position = i;
    expected.push_back(reference.sample(logits, row).token);
    kept.push_back(reference.kept(logits, row));
    call.add(logits, row);
  }
  call.run(cuda);
  int same = 0;
  for (size_t i = 0; i < expected.size(); ++i) {
    same += call.results[i].token == expected[i] ? 1 : 0;
    EXPECT_TRUE(std::binary_search(kept[i].begin(), kept[i].end(), call.results[i].token)) << i;
  }
  EXPECT_GE(same, 23);
}

TEST(DeviceSample, DrawsWhatTheReferenceDraws) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  uint64_t seed = 100;
  for (const int64_t vocabulary : {5, 1000, 49152, 128256}) {
    for (const float sigma : {0.0f, 0.01f, 2.0f, 12.0f}) {
      for (const SampleRow& row :
           {SampleRow{.temperature = 1.0f}, SampleRow{.temperature = 0.7f},
            SampleRow{.temperature = 1.0f, .top_k = 1}, SampleRow{.temperature = 1.3f, .top_k = 50},
            SampleRow{.temperature = 1.0f, .top_k = 3000},
            SampleRow{.temperature = 1.0f, .top_p = 0.95f},
            SampleRow{.temperature = 0.8f, .top_p = 0.1f},
            SampleRow{.temperature = 1.0f, .min_p = 0.05f},
            SampleRow{.temperature = 1e30f, .top_k = 40},
            SampleRow{.temperature = 1e-30f, .top_p = 0.9f},
            SampleRow{.temperature = 1.0f, .top_k = 50, .top_p = 0.9f, .min_p = 0.02f}}) {
        expect_draws_of_the_reference(cuda, vocabulary, sigma, row, ++seed);
      }
    }
  }
}

TEST(DeviceSample, TheDistributionIsTheSoftmax) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  Rng rng(3);
  constexpr int64_t kVocabulary = 40;
  constexpr int kDraws = 20000;
  const std::vector<float> logits = random_floats(rng, kVocabulary, 1.5f);
  SampleCall call{.vocabulary = kVocabulary};
  for (int i = 0; i < kDraws; ++i) {
    call.add(logits, {.temperature = 0.9f, .seed = 5, .position = static_cast<uint64_t>(i)});
  }
  call.run(cuda);
  std::map<TokenId, int> seen;
  for (const DeviceSampleResult& result : call.results) ++seen[result.token];
  double total = 0;
  for (const float x : logits) total += std::exp(x / 0.9);
  for (int64_t i = 0; i < kVocabulary; ++i) {
    const double p = std::exp(logits[static_cast<size_t>(i)] / 0.9) / total;
    const double deviation = std::sqrt(p * (1 - p) * kDraws) + 1;
    EXPECT_NEAR(seen[static_cast<TokenId>(i)], p * kDraws, 5 * deviation) << i;
  }
}

TEST(DeviceSample, PenaltiesBiasesAndBansAsTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kVocabulary = 2001;
  Rng rng(4);
  SampleReference reference(kVocabulary);
  SampleCall call{.vocabulary = kVocabulary, .counts = std::vector<uint16_t>(12 * kVocabulary)};
  std::vector<TokenId> expected;
  for (size_t i = 0; i < 12; ++i) {
    const std::vector<float> logits = random_floats(rng, kVocabulary, 3.0f);
    const auto best =
        static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
    std::vector<TokenId> prompt = {best, 5, 9};
    std::vector<TokenCount> output = {{best, 3}, {7, 1}};
    std::vector<std::pair<TokenId, float>> bias = {{7, 4.0f}, {11, -2.0f}, {best, 0.5f}};
    std::vector<TokenId> banned = {static_cast<TokenId>((best + 1) % kVocabulary)};
    const SampleRow row{.temperature = 0.0f,
                        .repetition_penalty = i % 2 == 0 ? 1.3f : 1.0f,
                        .presence_penalty = 0.4f,
                        .frequency_penalty = i % 3 == 0 ? 0.7f : 0.0f,
                        .prompt = prompt,
                        .output = output,
                        .logit_bias = bias,
                        .banned = banned,
                        .logprobs = 2};
    expected.push_back(reference.sample(logits, row).token);
    call.add(logits, row);
    call.rows[i].penalises = 1;
    call.rows[i].bias_first = static_cast<int32_t>(call.biases.size());
    call.rows[i].bias_count = 4;
    for (const auto& [token, value] : bias) call.biases.push_back({token, value, 0, 0});
    call.biases.push_back({banned[0], -kInfinity, 0, 0});
    uint16_t* counts = call.counts.data() + i * kVocabulary;
    for (const TokenId token : prompt) counts[token] |= kTokenInPrompt;
    for (const TokenCount& entry : output)
      counts[entry.token] += static_cast<uint16_t>(entry.count);
  }
  const std::vector<uint16_t> before = call.counts;
  call.run(cuda);
  for (size_t i = 0; i < expected.size(); ++i) {
    EXPECT_EQ(call.results[i].token, expected[i]) << i;
    // The drawn token is counted, no other count has changed.
    for (int64_t v = 0; v < kVocabulary; ++v) {
      const size_t at = i * kVocabulary + static_cast<size_t>(v);
      ASSERT_EQ(call.counts[at], before[at] + (v == expected[i] ? 1 : 0));
    }
  }
}

// Rows with masks beside rows without: the reference's tokens, and log-probabilities of the raw
// row.
TEST(DeviceSample, MasksAsTheReference) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {5, 1000, 2001, 49155, 151669}) {
    for (const uint64_t every : {uint64_t{1}, uint64_t{2}, uint64_t{50}, uint64_t{1} << 40}) {
      SCOPED_TRACE(testing::Message() << "V " << vocabulary << ", one of " << every);
      Rng rng(every + static_cast<uint64_t>(vocabulary));
      SampleReference reference(vocabulary);
      SampleCall call{.vocabulary = vocabulary};
      std::vector<SampleResult> expected;
      for (const SampleRow& kind :
           {SampleRow{.temperature = 0.0f}, SampleRow{.temperature = 0.0f, .logprobs = 3},
            SampleRow{.temperature = 0.9f}, SampleRow{.temperature = 1.0f, .logprobs = 0},
            SampleRow{.temperature = 1.0f, .top_k = 1}, SampleRow{.temperature = 1.3f, .top_k = 50},
            SampleRow{.temperature = 1.0f, .top_p = 0.95f},
            SampleRow{.temperature = 0.8f, .top_p = 0.1f, .logprobs = 2},
            SampleRow{.temperature = 1.0f, .min_p = 0.05f},
            SampleRow{.temperature = 1.0f, .top_k = 50, .top_p = 0.9f, .min_p = 0.02f}}) {
        for (int masked = 0; masked < 3; ++masked) {
          const std::vector<float> logits = random_floats(rng, vocabulary, 3.0f);
          const auto best =
              static_cast<TokenId>(std::max_element(logits.begin(), logits.end()) - logits.begin());
          std::vector<uint32_t> mask =
              random_mask(rng, vocabulary, every,
                          static_cast<TokenId>(rng.below(static_cast<uint64_t>(vocabulary))));
          // Of a forbidden token, too.
          const std::vector<std::pair<TokenId, float>> bias = {{best, 2.0f}};
          SampleRow row = kind;
          row.position = expected.size();
          if (masked > 0) row.allowed = mask;
          if (masked == 2) row.logit_bias = bias;
          expected.push_back(reference.sample(logits, row));
          call.add(logits, row);
          if (masked < 2) continue;
          call.rows.back().bias_first = static_cast<int32_t>(call.biases.size());
          call.rows.back().bias_count = 1;
          call.biases.push_back({best, 2.0f, 0, 0});
        }
      }
      call.run(cuda);
      size_t same = 0;
      for (size_t i = 0; i < expected.size(); ++i) {
        const DeviceSampleRow& row = call.rows[i];
        ASSERT_EQ(call.results[i].fault, 0) << i;
        const TokenId token = call.results[i].token;
        if (row.mask >= 0) {
          const int64_t word = row.mask * token_mask_words(vocabulary) + token / 32;
          EXPECT_TRUE(call.masks[static_cast<size_t>(word)] >> (token % 32) & 1) << i;
        }
        if (row.temperature == 0.0f) {
          EXPECT_EQ(token, expected[i].token) << i;
        }
        if (token != expected[i].token) continue;
        ++same;
        if (row.logprobs >= 0) {
          EXPECT_NEAR(call.results[i].logprob, expected[i].logprob, 4e-6);
        }
        for (size_t k = 0; row.logprobs > 0 && k < expected[i].top.size(); ++k) {
          const DeviceTopLogprob& top = call.tops[static_cast<size_t>(row.top_first) + k];
          EXPECT_EQ(top.token, expected[i].top[k].token);
          EXPECT_NEAR(top.logprob, expected[i].top[k].logprob, 4e-6);
        }
      }
      EXPECT_GE(same + 1, expected.size());
    }
  }
}

// A number that is none is a fault where a mask forbids its token, too; so is a mask of nothing.
TEST(DeviceSample, AMaskHidesNoFault) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kVocabulary = 1003;
  Rng rng(21);
  for (const DType dtype : {DType::kF32, DType::kBF16}) {
    for (const int32_t logprobs : {-1, 2}) {
      SampleCall call{.vocabulary = kVocabulary, .dtype = dtype};
      for (uint64_t i = 0; i < 5; ++i) {
        std::vector<float> logits = random_floats(rng, kVocabulary, 2.0f);
        for (float& value : logits) value = bfloat16_to_float(float_to_bfloat16(value));
        std::vector<uint32_t> mask = random_mask(rng, kVocabulary, 3, 77);
        mask[0] &= ~(1u << 9);
        if (i == 1) logits[9] = std::nanf("");
        if (i == 2) logits[9] = kInfinity;
        if (i == 3) mask.assign(mask.size(), 0);
        call.add(logits,
                 {.temperature = 0.9f, .top_p = 0.9f, .allowed = mask, .logprobs = logprobs});
      }
      call.run(cuda);
      for (size_t i = 0; i < 5; ++i) {
        EXPECT_EQ(call.results[i].fault, i >= 1 && i <= 3 ? 1 : 0) << i;
      }
    }
  }
}

TEST(DeviceSample, LogprobsAreThoseOfTheRawRow) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {1, 17, 3000, 128256}) {
    for (const float sigma : {0.0f, 3.0f, 25.0f}) {
      Rng rng(6);
      SampleCall call{.vocabulary = vocabulary};
      const auto k = static_cast<int32_t>(std::min<int64_t>(20, vocabulary));
      std::vector<std::vector<float>> all;
      for (int i = 0; i < 4; ++i) {
        all.push_back(random_floats(rng, vocabulary, sigma));
        call.add(all.back(), {.temperature = 0.8f, .top_p = 0.9f, .position = 3, .logprobs = k});
        if (i % 2 == 1) call.rows.back().scored = static_cast<TokenId>(vocabulary / 2);
      }
      call.run(cuda);
      for (size_t i = 0; i < all.size(); ++i) {
        const std::vector<float>& logits = all[i];
        const double largest = *std::max_element(logits.begin(), logits.end());
        double total = 0;
        for (const float x : logits) total += std::exp(x - largest);
        const auto exact = [&](TokenId t) {
          return logits[static_cast<size_t>(t)] - largest - std::log(total);
        };
        const DeviceSampleResult& result = call.results[i];
        if (i % 2 == 1) {
          EXPECT_EQ(result.token, vocabulary / 2);
          EXPECT_EQ(call.last_tokens[i], -7);  // nothing was drawn
        }
        EXPECT_NEAR(result.logprob, exact(result.token), 4e-6);
        std::vector<TokenId> order(static_cast<size_t>(vocabulary));
        std::iota(order.begin(), order.end(), 0);
        std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
          return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
        });
        for (size_t j = 0; j < static_cast<size_t>(k); ++j) {
          const DeviceTopLogprob& top = call.tops[64 * i + j];
          EXPECT_EQ(top.token, order[j]);
          EXPECT_NEAR(top.logprob, exact(order[j]), 4e-6);
        }
      }
    }
  }
}

// Rows of all kinds, changed ones too; a row's values as bf16, where many are equal.
SampleCall bfloat16_rows(int64_t vocabulary, float mean, float sigma) {
  Rng rng(12);
  SampleCall call{.vocabulary = vocabulary};
  const auto last = static_cast<TokenId>(vocabulary - 1);
  uint64_t position = 0;
  for (const SampleRow& row :
       {SampleRow{.temperature = 0.0f, .logprobs = 5}, SampleRow{.temperature = 1.0f},
        SampleRow{.temperature = 0.7f, .min_p = 0.05f}, SampleRow{.temperature = 1.0f, .top_k = 50},
        SampleRow{.temperature = 1.3f, .top_k = 3000},
        SampleRow{.temperature = 1.0f, .top_p = 0.95f},
        SampleRow{.temperature = 0.8f, .top_p = 0.5f, .logprobs = 3},
        SampleRow{.temperature = 1.0f, .top_k = 40, .top_p = 0.9f},
        SampleRow{.temperature = 1e30f, .top_p = 0.3f}}) {
    for (int changes = 0; changes < 3; ++changes) {
      std::vector<float> values = random_floats(rng, vocabulary, sigma);
      for (float& value : values) value = bfloat16_to_float(float_to_bfloat16(value + mean));
      SampleRow positioned = row;
      positioned.position = position++;
      call.add(values, positioned);
      if (changes == 0) continue;
      call.rows.back().bias_first = static_cast<int32_t>(call.biases.size());
      call.rows.back().bias_count = 3;
      call.rows.back().penalises = 1;
      call.rows.back().presence_penalty = 0.3f;
      call.biases.push_back({0, 0.123f, 0, 0});
      call.biases.push_back({last / 2, 2.2f, 0, 0});
      call.biases.push_back({last, -kInfinity, 0, 0});
      if (changes == 2) call.add_mask(random_mask(rng, vocabulary, 3, 0));
    }
  }
  call.counts.resize(call.rows.size() * static_cast<size_t>(vocabulary));
  for (size_t i = 0; i < call.counts.size(); i += 5) call.counts[i] = kTokenInPrompt | 1;
  return call;
}

TEST(DeviceSample, Bfloat16LogitsGiveWhatTheirValuesInFloat32Give) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {101, 5000, 128256}) {
    for (const float mean : {0.0f, -20.0f}) {
      SampleCall wide = bfloat16_rows(vocabulary, mean, 2.0f);
      SampleCall narrow = wide;
      narrow.dtype = DType::kBF16;
      wide.run(cuda);
      narrow.run(cuda);
      for (size_t i = 0; i < wide.results.size(); ++i) {
        EXPECT_EQ(narrow.results[i].token, wide.results[i].token) << "row " << i;
        EXPECT_EQ(narrow.results[i].logprob, wide.results[i].logprob) << "row " << i;
      }
      EXPECT_TRUE(narrow.counts == wide.counts);
    }
  }
}

// Rows of an odd vocabulary that start on 256 bytes, as a step has them: the same answers as of
// rows that no access fits, though what lies behind the last logit is NaN.
TEST(DeviceSample, WhatLiesBehindTheLastLogitIsNeitherDrawnNorCounted) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {5, 7, 63, 65, 1023, 8191, 32001, 49155, 151669}) {
    SCOPED_TRACE(vocabulary);
    for (const DType dtype : {DType::kF32, DType::kBF16}) {
      const int64_t bytes = dtype_info(dtype).block_bytes;
      SampleCall aligned = bfloat16_rows(vocabulary, 0.0f, 2.0f);
      aligned.dtype = dtype;
      SampleCall apart = aligned;
      aligned.gap = (256 - vocabulary * bytes % 256) % 256 / bytes;
      apart.gap = 1 + vocabulary % 2;  // an odd stride
      aligned.run(cuda);
      apart.run(cuda);
      for (size_t i = 0; i < aligned.results.size(); ++i) {
        EXPECT_EQ(aligned.results[i].token, apart.results[i].token) << "row " << i;
        EXPECT_EQ(aligned.results[i].fault, apart.results[i].fault) << "row " << i;
        EXPECT_EQ(aligned.results[i].logprob, apart.results[i].logprob) << "row " << i;
        EXPECT_LT(aligned.results[i].token, vocabulary) << "row " << i;
      }
      EXPECT_EQ(aligned.last_tokens, apart.last_tokens);
      EXPECT_TRUE(aligned.counts == apart.counts);
    }
  }
}

// The last logit is the largest: ends of rows are read.
TEST(DeviceSample, TheLastLogitIsDrawn) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  for (const int64_t vocabulary : {1, 2, 3, 5, 4095, 49153, 49154, 49155}) {
    SampleCall call{.vocabulary = vocabulary, .gap = (64 - vocabulary % 64) % 64};
    std::vector<float> logits(static_cast<size_t>(vocabulary), -3.0f);
    logits.back() = 90.0f;
    for (const SampleRow& row :
         {SampleRow{.temperature = 0.0f, .logprobs = 1}, SampleRow{.temperature = 1.0f},
          SampleRow{.temperature = 1.0f, .top_k = 5}, SampleRow{.temperature = 1.0f, .top_p = 0.9f},
          SampleRow{.temperature = 1.0f, .min_p = 0.1f}}) {
      call.add(logits, row);
    }
    call.run(cuda);
    for (const DeviceSampleResult& result : call.results) EXPECT_EQ(result.token, vocabulary - 1);
    EXPECT_NEAR(call.results[0].logprob, 0.0f, 1e-6f);
  }
}

TEST(DeviceSample, ManyLogprobsAreInOrder) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kVocabulary = 50000;
  constexpr int32_t kTops = 700;
  Rng rng(11);
  for (const float sigma : {0.0f, 2.0f}) {
    SampleCall call{.vocabulary = kVocabulary};
    const std::vector<float> logits = random_floats(rng, kVocabulary, sigma);
    for (int i = 0; i < 12; ++i) call.add(logits, {.temperature = 0.0f, .logprobs = -1});
    call.rows[0].logprobs = kTops;  // in the places of all rows
    call.run(cuda);
    std::vector<TokenId> order(static_cast<size_t>(kVocabulary));
    std::iota(order.begin(), order.end(), 0);
    std::stable_sort(order.begin(), order.end(), [&](TokenId a, TokenId b) {
      return logits[static_cast<size_t>(a)] > logits[static_cast<size_t>(b)];
    });
    for (size_t i = 0; i < kTops; ++i) ASSERT_EQ(call.tops[i].token, order[i]) << i;
  }
}

TEST(DeviceSample, AFaultStaysInItsRow) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kVocabulary = 777;
  Rng rng(7);
  SampleCall clean{.vocabulary = kVocabulary};
  for (uint64_t i = 0; i < 6; ++i) {
    clean.add(random_floats(rng, kVocabulary, 2.0f),
              {.top_p = 0.9f, .seed = 9, .position = i, .logprobs = 3});
  }
  SampleCall bad = clean;
  bad.logits[1 * kVocabulary + 776] = std::nanf("");
  bad.logits[2 * kVocabulary] = kInfinity;
  std::fill_n(bad.logits.begin() + 4 * kVocabulary, kVocabulary, -kInfinity);
  clean.run(cuda);
  SampleCall poisoned = bad;
  poisoned.logits[1 * kVocabulary + 776] =
      0.0f;  // NaN bits do not compare; the row is checked below
  bad.run(cuda);
  for (size_t i = 0; i < 6; ++i) {
    const bool faulty = i == 1 || i == 2 || i == 4;
    EXPECT_EQ(bad.results[i].fault, faulty ? 1 : 0) << i;
    EXPECT_EQ(bad.results[i].token, faulty ? -1 : clean.results[i].token);
    if (!faulty) {
      EXPECT_TRUE(same_bits(&bad.results[i].logprob, &clean.results[i].logprob, 1));
    }
    EXPECT_GE(bad.last_tokens[i], 0);
  }
}

TEST(SlotState, AppliesDeltas) {
  HR_CUDA_DEVICE_OR_SKIP(cuda);
  constexpr int64_t kVocabulary = 101;
  const CudaArray<BlockTableEntry> entries(cuda, {{5, 50}, {0, 7}, {19, 3}});
  std::vector<TokenMark> mark_list;
  for (int i = 0; i < 40; ++i) mark_list.push_back({.index = kVocabulary + 4, .in_output = 1});
  mark_list.push_back({.index = kVocabulary + 4, .in_output = 0});
  mark_list.push_back({.index = kVocabulary + 5, .in_output = 0});
  mark_list.push_back({.index = kVocabulary + 5, .in_output = 0});
  const CudaArray<TokenMark> marks(cuda, mark_list);
  const CudaArray<TokenId> tokens(cuda,
                                  {12, token_of_slot(SlotId(1)), 9, token_of_slot(SlotId(0))});
  const CudaArray<TokenId> last(cuda, {1000, 1001});
  const CudaArray<int32_t> tables(cuda, std::vector<int32_t>(20, -5));
  const CudaArray<uint16_t> counts(cuda, std::vector<uint16_t>(2 * kVocabulary));
  OpContext context = cuda.context();
  update_slot_state(context, {.entries = entries.span(),
                              .marks = marks.span(),
                              .tokens = tokens.span(),
                              .block_tables = tables.data(),
                              .token_counts = counts.data(),
                              .last_tokens = last.data()});
  EXPECT_EQ(tokens.read(), (std::vector<TokenId>{12, 1001, 9, 1000}));
  std::vector<int32_t> expected(20, -5);
  expected[5] = 50, expected[0] = 7, expected[19] = 3;
  EXPECT_EQ(tables.read(), expected);
  const std::vector<uint16_t> counted = counts.read();
  EXPECT_EQ(counted[kVocabulary + 4], kTokenInPrompt | 40);
  EXPECT_EQ(counted[kVocabulary + 5], kTokenInPrompt);
  EXPECT_EQ(std::accumulate(counted.begin(), counted.end(), 0), 2 * kTokenInPrompt + 40);
}

}  // namespace
}  // namespace headrace::device_sample_test
