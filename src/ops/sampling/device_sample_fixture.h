// Rows of logits through every sampling kernel of a GPU, and through the CPU's definition; for
// tests.
#pragma once

#include <gtest/gtest.h>

#include <cmath>
#include <cstddef>
#include <cstdint>
#include <span>
#include <string>
#include <vector>

#include "base/rng.h"
#include "base/token_constraint.h"
#include "ops/cuda_fixture.h"
#include "ops/sampling/device_sample.h"
#include "ops/sampling/sample.h"
#include "ops/sampling/sample_row.h"

namespace headrace {

// Rows of one call, and what came of them.
struct SampleCall {
  int64_t vocabulary;
  DType dtype = DType::kF32;  // of the logits on the device; their values are of this type
  int64_t gap = 4;            // elements of NaN between one row and the next
  std::vector<float> logits;  // [R, V]
  std::vector<DeviceSampleRow> rows;
  std::vector<DeviceLogitBias> biases = {{0, 0.0f, 0.0f, 0}};
  std::vector<uint32_t> masks;   // [masks, ceil(V / 32)]
  std::vector<uint16_t> counts;  // [slots, V] or empty

  std::vector<DeviceSampleResult> results;
  std::vector<DeviceTopLogprob> tops;
  std::vector<TokenId> last_tokens;  // before the call; empty: none

  // One row for each, with its own slot.
  void add(std::vector<float> values, const SampleRow& row) {
    logits.insert(logits.end(), values.begin(), values.end());
    rows.push_back({.temperature = row.temperature,
                    .top_p = row.top_p,
                    .min_p = row.min_p,
                    .repetition_penalty = row.repetition_penalty,
                    .presence_penalty = row.presence_penalty,
                    .frequency_penalty = row.frequency_penalty,
                    .top_k = row.top_k,
                    .logprobs = row.logprobs,
                    .random = counter_hash(row.seed, row.choice, row.position, RngPurpose::kSample),
                    .slot = static_cast<int32_t>(rows.size()),
                    .scored = -1,
                    .bias_first = 0,
                    .bias_count = 0,
                    .top_first = 64 * static_cast<int32_t>(rows.size()),
                    .penalises = 0});
    if (!row.allowed.empty()) add_mask(row.allowed);
  }
  // Of the last row.
  void add_mask(std::span<const uint32_t> allowed) {
    rows.back().mask = static_cast<int32_t>(masks.size() / allowed.size());
    masks.insert(masks.end(), allowed.begin(), allowed.end());
  }

  // Every kernel that can; their answers have the same bits.
  void run(TestDevice& cuda) {
    const SampleCall given = *this;
    bool first = true;
    for (const auto& kernel : device_sample_kernels().all()) {
      SCOPED_TRACE(std::string(kernel.name));
      SampleCall call = given;
      if (!call.run(cuda, kernel)) continue;
      if (first) {
        *this = call;
        first = false;
        continue;
      }
      ASSERT_EQ(call.results.size(), results.size());
      for (size_t i = 0; i < results.size(); ++i) {
        EXPECT_EQ(call.results[i].token, results[i].token) << "row " << i;
        EXPECT_EQ(call.results[i].fault, results[i].fault) << "row " << i;
        EXPECT_EQ(call.results[i].logprob, results[i].logprob) << "row " << i;
      }
      for (size_t i = 0; i < tops.size(); ++i) {
        ASSERT_EQ(call.tops[i].token, tops[i].token) << "top " << i;
        ASSERT_EQ(call.tops[i].logprob, tops[i].logprob) << "top " << i;
      }
      EXPECT_EQ(call.last_tokens, last_tokens);
      EXPECT_TRUE(call.counts == counts);
    }
    ASSERT_FALSE(first) << "no kernel takes these rows";
  }

 private:
  bool run(TestDevice& cuda, const Kernel<DeviceSampleArgs>& kernel) {
    const auto count = static_cast<int64_t>(rows.size());
    CudaMatrix logits_on(cuda, dtype, count, vocabulary, gap, &logits);
    const CudaArray<DeviceSampleRow> rows_on(cuda, rows);
    const CudaArray<DeviceLogitBias> biases_on(cuda, biases);
    const CudaArray<uint32_t> masks_on(cuda, masks.empty() ? std::vector<uint32_t>(1) : masks);
    const CudaArray<uint16_t> counts_on(cuda, counts.empty() ? std::vector<uint16_t>(2) : counts);
    const CudaArray<TokenId> last_on(
        cuda, last_tokens.empty() ? std::vector<TokenId>(rows.size(), -7) : last_tokens);
    const CudaArray<DeviceSampleResult> results_on(
        cuda, std::vector<DeviceSampleResult>(rows.size(), {-9, -9, -9.0f}));
    const CudaArray<DeviceTopLogprob> tops_on(
        cuda, std::vector<DeviceTopLogprob>(64 * rows.size(), {-9, -9.0f}));
    const DeviceSampleArgs args{.logits = logits_on.view(),
                                .rows = rows_on.data(),
                                .biases = biases_on.data(),
                                .masks = masks_on.data(),
                                .token_counts = counts_on.data(),
                                .last_tokens = last_on.data(),
                                .results = results_on.data(),
                                .tops = tops_on.data()};
    if (!kernel.supports(cuda.device().traits(), args)) return false;
    OpContext context = cuda.context();
    kernel.run(context, args);
    results = results_on.read();
    tops = tops_on.read();
    last_tokens = last_on.read();
    if (!counts.empty()) counts = counts_on.read();
    std::vector<float> after = logits_on.read();
    forgive_forbidden(after);
    EXPECT_TRUE(same_bits(after.data(), logits.data(), static_cast<int64_t>(after.size())));
    return true;
  }
  // What a mask forbids may be -infinity behind the choice, or NaN where it was no number.
  void forgive_forbidden(std::vector<float>& after) const {
    for (size_t row = 0; row < rows.size(); ++row) {
      if (rows[row].mask < 0) continue;
      const int64_t first = rows[row].mask * token_mask_words(vocabulary);
      for (int64_t token = 0; token < vocabulary; ++token) {
        const size_t at = row * static_cast<size_t>(vocabulary) + static_cast<size_t>(token);
        if ((masks[static_cast<size_t>(first + token / 32)] >> (token % 32) & 1) != 0) continue;
        EXPECT_TRUE(same_bits(&after[at], &logits[at], 1) || !std::isfinite(after[at]));
        after[at] = logits[at];
      }
    }
  }
};

// The reference's memory and its two answers for a row.
class SampleReference {
 public:
  explicit SampleReference(int64_t vocabulary)
      : vocabulary_(vocabulary),
        memory_(static_cast<size_t>(SampleScratch::bytes(vocabulary)) + 64),
        scratch_(SampleScratch::carve(memory_.data(), vocabulary)) {}
  SampleResult sample(const std::vector<float>& logits, const SampleRow& row) {
    return sample_row(kLogitMathReference, scratch_, logits.data(), vocabulary_, row);
  }
  std::vector<TokenId> kept(const std::vector<float>& logits, const SampleRow& row) {
    return kept_tokens(kLogitMathReference, scratch_, logits.data(), vocabulary_, row);
  }

 private:
  int64_t vocabulary_;
  std::vector<std::byte> memory_;
  SampleScratch scratch_;
};

}  // namespace headrace
