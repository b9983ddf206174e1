// Mixtures of experts whose sizes the tiles of ops/linear/grouped.h take, which no tiny model's
// are, in the whole engine on a GPU: dummy weights, answers beside the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <map>
#include <mutex>
#include <string>
#include <string_view>

#include <fmt/format.h>

#include "../golden/model_under_test.h"
#include "base/rng.h"
#include "ops/op.h"
#include "tensor/device.h"

namespace headrace::experts_cuda_test {
namespace {

constexpr int32_t kVocab = 96, kLayers = 3, kNewTokens = 12;

// The folder of a configuration.
std::string mixture_model() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "wide-mixture";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["Qwen3MoeForCausalLM"], "model_type": "qwen3_moe", "hidden_act": "silu",
           "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 192,
           "num_experts": 16, "num_experts_per_tok": 4, "norm_topk_prob": true,
           "decoder_sparse_step": 1, "mlp_only_layers": [], "attention_bias": false,
           "num_attention_heads": 4, "num_key_value_heads": 2, "head_dim": 64,
           "num_hidden_layers": {}, "vocab_size": {}, "max_position_embeddings": 512,
           "rms_norm_eps": 1e-6, "rope_theta": 10000.0, "rope_scaling": null,
           "use_sliding_window": false, "sliding_window": null,
           "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false}})",
      kLayers, kVocab);
  return folder.string();
}

StackOptions mixture_options(DeviceChoice device, DType dtype) {
  return {.model = mixture_model(),
          .device = {.choice = device, .threads = 2},
          .load = {.format = LoadFormat::kDummy, .dtype = dtype},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 256},
          .memory = {.kv_cache_memory_bytes = 64 << 20},
          .engine = {.scheduler = {.enable_prefix_caching = false}},
          .runner = {.graphs_at_start = true, .gemm_trials = false}};
}

std::vector<TestRequest> mixture_requests() {
  std::vector<TestRequest> requests;
  Rng rng(5);
  for (int i = 0; i < 7; ++i) {  // padded to 8 rows
    TestRequest request;
    for (int t = 0; t < 3 + 40 * i; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    request.sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    request.sampling.logprobs = 3;
    request.sampling.prompt_logprobs = 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Of log-probabilities of the same tokens, until texts go apart.
void add_distances(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b,
                   std::vector<double>& distances) {
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].token == b[i].token; ++i) {
    distances.push_back(std::abs(double{a[i].logprob} - b[i].logprob));
  }
}

// How often each kernel was taken. Any thread.
class ChosenKernels {
 public:
  OpHooks hooks(const std::vector<std::string>& preferred) {
    return {.preferred = preferred, .chosen = [this](std::string_view kernel) {
              const std::lock_guard lock(mutex_);
              ++counts_[std::string(kernel)];
            }};
  }
  int count(const std::string& kernel) {
    const std::lock_guard lock(mutex_);
    return counts_[kernel];
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// On memory full of NaN, recorded. Rounding swaps experts here and there: nine of ten positions
// are near.
void expect_near_cpu(DType dtype, double distance_max, const std::string& kernel,
                     const std::vector<std::string>& preferred,
                     std::optional<DType> quantise_to = {}) {
  SCOPED_TRACE(kernel);
  const bool of_few_rows = kernel.starts_with("norm_route/");
  StackOptions on_cpu = mixture_options(DeviceChoice::kCpu, DType::kF32);
  if (quantise_to) {  // its weights, and activations of 16 bits
    on_cpu.load.dtype = {};
    on_cpu.load.activation_bits = 16;
    on_cpu.load.quantise_to = quantise_to;
  }
  auto cpu = ModelUnderTest::load(on_cpu);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  ChosenKernels chosen;
  const OpHooks hooks = chosen.hooks(preferred);
  StackOptions options = mixture_options(DeviceChoice::kGpu, dtype);
  options.load.quantise_to = quantise_to;
  options.runner.poison_workspace = options.runner.poison_kv = true;
  options.runner.hooks = &hooks;
  auto gpu = ModelUnderTest::load(options);
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  const auto all = mixture_requests();
  const auto expected = cpu->answer(all).value();
  // What takes few rows gets them: one request after the other.
  std::vector<Outcome> actual;
  for (size_t i = 0; of_few_rows && i < all.size(); ++i) {
    actual.push_back(gpu->answer(all[i]).value());
  }
  if (!of_few_rows) actual = gpu->answer(all).value();
  std::vector<double> distances;
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(actual[i].finish, FinishReason::kLength) << i;
    add_distances(expected[i].prompt_logprobs, actual[i].prompt_logprobs, distances);
    add_distances(expected[i].logprobs, actual[i].logprobs, distances);
  }
  ASSERT_GE(distances.size(), 800u);
  std::ranges::sort(distances);
  fmt::print("mixture | {}, {} | distance of nine tenths {:.4f}, largest {:.4f}\n",
             dtype_name(dtype), kernel, distances[distances.size() * 9 / 10], distances.back());
  EXPECT_LE(distances[distances.size() * 9 / 10], distance_max);
  EXPECT_GE(chosen.count(kernel), kLayers);
}

TEST(ExpertsCuda, AnswersAreNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string tiles : {"few", "many_any_rows"}) {
    const std::string kernel = "grouped_linear/cuda/" + tiles;
    const std::vector<std::string> preferred = {kernel};
    expect_near_cpu(DType::kBF16, 0.1, kernel, preferred);
    expect_near_cpu(DType::kF16, 0.02, kernel, preferred);
  }
  const std::string routing = "norm_route/cuda/cluster";
  expect_near_cpu(DType::kBF16, 0.1, routing, {routing});
  expect_near_cpu(DType::kF16, 0.02, routing, {routing});
  expect_near_cpu(DType::kF32, 1e-3, "grouped_linear/cuda/any", {});
}

// Experts of block types, as they lie in a file: few rows and, of prompts, many. In F16 random
// weights are others than the CPU's before they are quantised.
TEST(ExpertsCuda, PackedExpertsAreNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string kernel : {"grouped_linear/cuda/blocks", "grouped_linear/cuda/unpacked"}) {
    for (const DType type : {DType::kQ8_0, DType::kQ4_0}) {
      expect_near_cpu(DType::kBF16, 0.1, kernel, {}, type);
      expect_near_cpu(DType::kF16, 0.05, kernel, {}, type);
    }
  }
}

// With --batch-invariant a row's bits are its sequence's own: together, alone, cut otherwise.
TEST(ExpertsCuda, BatchInvariantRowsAreBitEqual) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions options = mixture_options(DeviceChoice::kGpu, DType::kBF16);
  options.device.batch_invariant = true;
  const auto all = mixture_requests();
  auto model = ModelUnderTest::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const auto together = model->answer(all).value();
  options.batch.max_num_batched_tokens = 37;
  auto chunked = ModelUnderTest::load(options);
  ASSERT_TRUE(chunked.ok()) << chunked.status().message();
  const auto cut = chunked->answer(all).value();
  for (size_t i = 0; i < all.size(); ++i) {
    const Outcome alone = model->answer(all[i]).value();
    for (const Outcome* const other : {&alone, &cut[i]}) {
      EXPECT_EQ(together[i].tokens, other->tokens) << i;
      std::vector<double> distances;
      add_distances(together[i].logprobs, other->logprobs, distances);
      add_distances(together[i].prompt_logprobs, other->prompt_logprobs, distances);
      EXPECT_TRUE(std::ranges::all_of(distances, [](double d) { return d == 0; })) << i;
    }
  }
}

}  // namespace
}  // namespace headrace::experts_cuda_test
