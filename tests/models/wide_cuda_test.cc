// gemv (ops/linear/gemv.h), and FP8 rows of many tokens (ops/linear/float8.h), in the whole engine:
// a model of two layers and few tokens whose matrices are 4096 x 4096 and more, which no tiny
// model's are, on the GPU and on the CPU.
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

namespace headrace::wide_cuda_test {
namespace {

constexpr int32_t kVocab = 96, kLayers = 2;
constexpr int32_t kNewTokens = 8;
constexpr size_t kPromptTokens = 9;  // a step of one prompt has more rows than gemv takes
// In ln p: 16 bits round hidden rows some ten times, and logits have a sigma of 1.3.
constexpr double kBf16DistanceMax = 0.2, kF16DistanceMax = 0.05;

// The folder of a configuration, for dummy weights.
std::string wide_model() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "wide-llama";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 4096, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": {}, "vocab_size": {},
           "max_position_embeddings": 1024, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false}})",
      kLayers, kVocab);
  return folder.string();
}

StackOptions options_of(DeviceChoice device, DType dtype) {
  return {.model = wide_model(),
          .device = {.choice = device},
          .load = {.format = LoadFormat::kDummy, .dtype = dtype},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 128},
          .memory = {.kv_cache_memory_bytes = 64 << 20},
          .engine = {.scheduler = {.enable_prefix_caching = false}},
          .runner = {.gemm_trials = false}};
}

// How often each kernel was taken. Any thread.
class ChosenKernels {
 public:
  OpHooks hooks() {
    return {.chosen = [this](std::string_view kernel) {
      const std::lock_guard lock(mutex_);
      ++counts_[std::string(kernel)];
    }};
  }
  // Since the last call.
  std::map<std::string, int> take() {
    const std::lock_guard lock(mutex_);
    return std::exchange(counts_, {});
  }

 private:
  std::mutex mutex_;
  std::map<std::string, int> counts_;
};

// All the products of a layer: qkv, gate and up, and the two that end a branch.
void expect_gemv(std::map<std::string, int> counts, int each_min) {
  EXPECT_GE(counts["norm_linear/cuda/gemv"], each_min);
  EXPECT_GE(counts["norm_gated_linear/cuda/gemv"], each_min);
  EXPECT_GE(counts["residual_linear/cuda/gemv"], 2 * each_min);
}

std::vector<TestRequest> requests(size_t count) {
  std::vector<TestRequest> requests;
  Rng rng(5);
  for (size_t i = 0; i < count; ++i) {
    TestRequest request;
    for (size_t t = 0; t < kPromptTokens + i; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    request.sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    request.sampling.logprobs = 3;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Of log-probabilities of the same tokens, and how many they are: from the first other token on
// texts go apart.
struct Distance {
  double largest = 0;
  size_t compared = 0;

  void add(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b) {
    for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].token == b[i].token; ++i) {
      largest = std::max(largest, std::abs(double{a[i].logprob} - b[i].logprob));
      ++compared;
    }
  }
};

// Decodes of one row to eight, as they are and replayed.
void expect_decodes_near(DType dtype, double distance_max) {
  auto cpu = ModelUnderTest::load(options_of(DeviceChoice::kCpu, DType::kF32));
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto expected = cpu->answer(requests(8)).value();
  for (const bool graphs : {false, true}) {
    SCOPED_TRACE(graphs ? "recorded" : "eager");
    ChosenKernels chosen;
    const OpHooks hooks = chosen.hooks();
    StackOptions options = options_of(DeviceChoice::kGpu, dtype);
    options.runner.graphs = options.runner.graphs_at_start = graphs;
    options.runner.poison_workspace = options.runner.poison_kv = true;
    options.runner.hooks = &hooks;
    auto gpu = ModelUnderTest::load(options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    // Every size of a recording takes gemv; without them nothing has run yet.
    if (graphs) expect_gemv(chosen.take(), 4 * kLayers);
    Distance distance;
    for (size_t rows = 1; rows <= 8; ++rows) {
      SCOPED_TRACE(rows);
      const auto all = requests(rows);
      const auto answers = gpu->answer(all).value();
      for (size_t i = 0; i < rows; ++i) {
        EXPECT_EQ(answers[i].finish, FinishReason::kLength);
        distance.add(expected[i].logprobs, answers[i].logprobs);
      }
      // But for the first, a token is a step, in some of which others' prompts may be.
      if (!graphs) expect_gemv(chosen.take(), kLayers * (kNewTokens - 3));
    }
    fmt::print("wide | decode, {}, {} | largest distance {:.4f} of {} log-probabilities\n",
               dtype_name(dtype), graphs ? "recorded" : "eager", distance.largest,
               distance.compared);
    EXPECT_LE(distance.largest, distance_max);
    EXPECT_GE(distance.compared, size_t{36 * kNewTokens / 2});
  }
}

TEST(WideCuda, DecodesOfOneRowToEightInBf16AreNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_decodes_near(DType::kBF16, kBf16DistanceMax);
}

TEST(WideCuda, DecodesOfOneRowToEightInF16AreNearer) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_decodes_near(DType::kF16, kF16DistanceMax);
}

// The same tokens whatever the GPU would choose: scores of a text that comes a few rows a step.
TEST(WideCuda, TextsScoredByFewRowsAStepAreNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  TestRequest text;
  Rng rng(6);
  for (int i = 0; i < 49; ++i) text.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
  text.sampling = {.temperature = 0, .max_tokens = 0, .prompt_logprobs = 3};
  auto cpu = ModelUnderTest::load(options_of(DeviceChoice::kCpu, DType::kF32));
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto expected = cpu->answer(text).value().prompt_logprobs;
  ASSERT_EQ(expected.size(), 48u);
  for (const int32_t rows : {1, 2, 5, 8}) {
    SCOPED_TRACE(rows);
    ChosenKernels chosen;
    const OpHooks hooks = chosen.hooks();
    StackOptions options = options_of(DeviceChoice::kGpu, DType::kBF16);
    options.batch.max_num_seqs = 1;
    options.batch.max_num_batched_tokens = rows;
    options.runner.graphs = false;
    options.runner.hooks = &hooks;
    auto gpu = ModelUnderTest::load(options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    Distance distance;
    distance.add(expected, gpu->answer(text).value().prompt_logprobs);
    expect_gemv(chosen.take(), kLayers * 48 / rows);
    fmt::print("wide | scores, {} rows a step | largest distance {:.4f}\n", rows, distance.largest);
    EXPECT_EQ(distance.compared, expected.size());
    EXPECT_LE(distance.largest, kBf16DistanceMax);
  }
}

// Gates that the kernel applies which makes FP8 of rows (activated_linear) are those of an op of
// their own: products are the same, bit by bit, whether they are added to the residual at once
// (from 512 rows on) or not.
TEST(WideCuda, PromptsInFp8HaveTheBitsOfGatesApart) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const int tokens : {300, 600}) {
    SCOPED_TRACE(tokens);
    TestRequest text;
    Rng rng(7);
    for (int i = 0; i < tokens; ++i) {
      text.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    text.sampling = {.temperature = 0, .max_tokens = 0, .prompt_logprobs = 1};
    std::vector<std::vector<TokenLogprobs>> results;
    for (const bool apart : {true, false}) {
      ChosenKernels chosen;
      OpHooks hooks = chosen.hooks();
      if (apart) hooks.preferred = {"activated_linear/two_ops"};
      StackOptions options = options_of(DeviceChoice::kGpu, DType::kBF16);
      options.batch = {.max_num_seqs = 1, .max_num_batched_tokens = 1024};
      options.load.quantise_to = DType::kF8;
      options.runner.graphs = false;
      options.runner.hooks = &hooks;
      auto gpu = ModelUnderTest::load(options);
      ASSERT_TRUE(gpu.ok()) << gpu.status().message();
      chosen.take();
      results.push_back(gpu->answer(text).value().prompt_logprobs);
      const int joined = chosen.take()["activated_linear/cuda/float8"];
      EXPECT_EQ(joined, apart ? 0 : kLayers);
    }
    ASSERT_EQ(results[0].size(), static_cast<size_t>(tokens - 1));
    for (size_t i = 0; i < results[0].size(); ++i) {
      ASSERT_EQ(results[0][i].logprob, results[1][i].logprob) << "token " << i;
    }
  }
}

}  // namespace
}  // namespace headrace::wide_cuda_test
