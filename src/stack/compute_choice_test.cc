#include "stack/compute_choice.h"

#include <gtest/gtest.h>

#include "stack/model_files.h"

namespace headrace::compute_choice_test {
namespace {

constexpr int64_t kGpuBytes = int64_t{80} << 30;

ModelWeights mixture(const std::string& types, int64_t parameters) {
  ModelWeights weights;
  weights.weight_types = types;
  weights.parameter_count = parameters;
  weights.config.experts.count = 8;
  return weights;
}

bool packs(const LoadOptions& options, const ModelWeights& weights, int64_t gpus = 1) {
  return packs_experts(options, weights, {.memory_bytes = kGpuBytes}, gpus);
}

TEST(PacksExperts, WhereItIsAskedForOrSixteenBitsTakeHalf) {
  const ModelWeights small = mixture("Q4_K + Q6_K", 10'000'000'000);
  const ModelWeights large = mixture("Q4_K + Q6_K", 47'000'000'000);
  EXPECT_FALSE(packs({}, small));
  EXPECT_TRUE(packs({}, large));
  EXPECT_FALSE(packs({}, large, 4));
  EXPECT_TRUE(packs({.block_weights = BlockWeights::kPacked}, small));
  EXPECT_FALSE(packs({.block_weights = BlockWeights::kUnpacked}, large));
  EXPECT_TRUE(packs({.quantise_to = DType::kQ4_K}, mixture("BF16", 10'000'000'000)));
}

// FP8 is no block type, and F32 none at all.
TEST(PacksExperts, NotInTypesThatAreNoBlocks) {
  EXPECT_FALSE(packs({.quantise_to = DType::kF8}, mixture("BF16", 47'000'000'000)));
  EXPECT_FALSE(packs({}, mixture("E4M3-128x128 + BF16", 47'000'000'000)));
  EXPECT_FALSE(packs({.dtype = DType::kF32}, mixture("Q4_K", 47'000'000'000)));
}

TEST(PacksExperts, WhoseFewBitsAreLostIsTold) {
  const DeviceTraits gpu{.memory_bytes = kGpuBytes};
  const ModelWeights quantised = mixture("Q4_K", 10'000'000'000);
  EXPECT_TRUE(has_unpacked_experts({}, quantised, gpu, 1));
  EXPECT_TRUE(
      has_unpacked_experts({.quantise_to = DType::kF8}, mixture("BF16", 1'000'000), gpu, 1));
  EXPECT_FALSE(has_unpacked_experts({.quantise_to = DType::kQ4_0}, quantised, gpu, 1));
  EXPECT_FALSE(has_unpacked_experts({}, mixture("BF16", 10'000'000'000), gpu, 1));
}

}  // namespace
}  // namespace headrace::compute_choice_test
