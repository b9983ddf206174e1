// Models that are split over GPUs: tiny ones of every architecture, and a wide one whose matrices
// are large enough for the kernels of large models. The second rank is on the second GPU, or beside
// the first where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <cstdlib>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "../golden/model_under_test.h"
#include "../golden/same_outcome.h"
#include "base/rng.h"
#include "cpu_models_fixture.h"
#include "logprob_distance.h"
#include "tensor/device.h"

namespace headrace::ranks_cuda_test {
namespace {

constexpr int32_t kVocab = 96;  // of all models
constexpr int32_t kNewTokens = 24;

// Of two ranks on one GPU, a kernel that is loaded when it is first launched waits for the GPU, on
// which the other rank waits for this one. Before CUDA starts.
const bool kLoadsKernelsAtStart = [] {
  return ::setenv("CUDA_MODULE_LOADING", "EAGER", /*overwrite=*/0) == 0;
}();

std::vector<int> two_gpus() {
  const bool second = create_cuda_device(1, 1).ok();
  return {0, second ? 1 : 0};
}

StackOptions split_options(const std::string& path, std::optional<DType> dtype) {
  StackOptions options{.model = path,
                       .device = {.choice = DeviceChoice::kGpu, .gpus = two_gpus(), .threads = 2},
                       .load = {.dtype = dtype},
                       .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
                       .memory = {.kv_cache_memory_bytes = 64 << 20},
                       .runner = {.graphs_at_start = true}};
  options.device.tensor_parallel_size = 2;
  return options;
}
StackOptions whole_options(const std::string& path, DeviceChoice choice,
                           std::optional<DType> dtype) {
  StackOptions options = split_options(path, dtype);
  options.device.choice = choice;
  options.device.gpus = {};
  options.device.tensor_parallel_size = 1;
  return options;
}

std::vector<TestRequest> requests(int32_t length_max) {
  std::vector<TestRequest> requests;
  Rng rng(22);
  for (int i = 0; i < 8; ++i) {
    TestRequest request;
    const int32_t length = 1 + (length_max - kNewTokens - 1) * i / 7;
    for (int32_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    request.sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    request.sampling.logprobs = 3;
    request.sampling.prompt_logprobs = i % 2 == 0 ? 3 : -1;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i == 1) request.sampling.temperature = 0.8f;
    if (i == 2) request.sampling.repetition_penalty = 1.3f, request.sampling.penalty_window = 9;
    if (i == 5) request.sampling.temperature = 1.1f, request.sampling.top_p = 0.9f;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Sorted; of texts without a token in common 0.
std::vector<double> distances(const std::vector<TokenLogprobs>& a,
                              const std::vector<TokenLogprobs>& b) {
  std::vector<double> all = logprob_distances(a, b);
  all.push_back(0);
  std::ranges::sort(all);
  return all;
}

// What is not split, by name.
bool is_refused(const Status& status) {
  return status.code() == StatusCode::kUnsupported &&
         status.message().find("cannot be split over ranks") != std::string::npos;
}

std::vector<std::string> tiny_models() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/models")) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path().string());
    }
  }
  std::erase_if(paths, is_of_cpus_alone);
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Answers of ranks on GPUs beside those of one on a CPU. False: it is refused by name.
bool expect_answers_of_cpu(const StackOptions& split_options) {
  auto cpu = ModelUnderTest::load(
      whole_options(split_options.model, DeviceChoice::kCpu, split_options.load.dtype));
  auto split = ModelUnderTest::load(split_options);
  EXPECT_TRUE(cpu.ok()) << cpu.status().message();
  if (is_refused(split.status())) return false;
  EXPECT_TRUE(split.ok()) << split.status().message();
  if (!cpu.ok() || !split.ok()) return true;
  const auto all = requests(std::min(cpu->stack().info().max_model_len, 120));
  const auto expected = cpu->answer(all), actual = split->answer(all);
  EXPECT_TRUE(expected.ok() && actual.ok()) << actual.status().message();
  if (!expected.ok() || !actual.ok()) return true;
  int different = 0;
  for (size_t i = 0; i < all.size(); ++i) {
    const Outcome &want = (*expected)[i], &got = (*actual)[i];
    different += want.tokens == got.tokens ? 0 : 1;
    EXPECT_LE(distances(want.prompt_logprobs, got.prompt_logprobs).back(), 2e-3) << i;
    EXPECT_LE(distances(want.logprobs, got.logprobs).back(), 2e-3) << i;
  }
  EXPECT_LE(different, 1);
  return true;
}

TEST(RanksCuda, TinyModelsInFloat32AreTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int models = 0;
  for (const std::string& path : tiny_models()) {
    SCOPED_TRACE(path);
    if (expect_answers_of_cpu(split_options(path, DType::kF32))) ++models;
  }
  EXPECT_GE(models, 100);
}

TEST(RanksCuda, TinyMixturesOfWholeExpertsInFloat32AreTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int models = 0;
  for (const std::string& path : tiny_models()) {
    if (path.find("moe") == path.npos) continue;
    SCOPED_TRACE(path);
    StackOptions options = split_options(path, DType::kF32);
    options.device.enable_expert_parallel = true;
    EXPECT_TRUE(expect_answers_of_cpu(options));
    ++models;
  }
  EXPECT_GE(models, 12);
}

// Not split, on a GPU that is not the first: every thread has to say which one it means.
TEST(RanksCuda, AModelOnTheSecondGpuAnswersAsOnTheFirst) {
  if (!create_cuda_device(1, 1).ok()) GTEST_SKIP() << "not run: there are no two GPUs";
  for (const char* name : {"/llama", "/gemma2"}) {
    StackOptions options =
        whole_options(std::string("tests/data/models") + name, DeviceChoice::kGpu, DType::kBF16);
    options.device.gpus = {0};
    auto first = ModelUnderTest::load(options);
    options.device.gpus = {1};
    auto second = ModelUnderTest::load(options);
    ASSERT_TRUE(first.ok() && second.ok()) << second.status().message();
    const auto all = requests(100);
    const auto expected = first->answer(all), actual = second->answer(all);
    ASSERT_TRUE(expected.ok() && actual.ok()) << actual.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ((*expected)[i].tokens, (*actual)[i].tokens) << name << " " << i;
    }
  }
}

// The folder of a configuration, for dummy weights.
std::string wide_model() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "wide-ranks";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 8192, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 3, "vocab_size": {},
           "max_position_embeddings": 256, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false}})",
      kVocab);
  return folder.string();
}

// Steps replayed and not, prompts cut and whole, a rank that waits: the same answers.
TEST(RanksCuda, AWideModelInBf16IsNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  const std::string path = wide_model();
  const auto dummy = [](StackOptions options) {
    options.load.format = LoadFormat::kDummy;
    return options;
  };
  auto cpu = ModelUnderTest::load(dummy(whole_options(path, DeviceChoice::kCpu, DType::kF32)));
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto all = requests(120);
  const auto expected = cpu->answer(all);
  ASSERT_TRUE(expected.ok());
  for (const bool graphs : {true, false}) {
    for (const ShardSums sums : {ShardSums::kReduce, ShardSums::kGather}) {
      StackOptions options = dummy(split_options(path, DType::kBF16));
      options.runner.graphs = options.runner.graphs_at_start = graphs;
      options.device.tensor_parallel_sums = sums;
      auto split = ModelUnderTest::load(options);
      ASSERT_TRUE(split.ok()) << split.status().message();
      for (int turn = 0; turn < 3; ++turn) {
        const auto actual = split->answer(all);
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        for (size_t i = 0; i < all.size(); ++i) {
          const Outcome &want = (*expected)[i], &got = (*actual)[i];
          EXPECT_EQ(got.tokens.size(), static_cast<size_t>(kNewTokens));
          EXPECT_LE(distances(want.prompt_logprobs, got.prompt_logprobs).back(), 0.25) << i;
          EXPECT_LE(distances(want.logprobs, got.logprobs).back(), 0.25) << i;
        }
      }
    }
  }
}

// Of experts whose sizes the tiles take, with a shared one.
std::string wide_mixture() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "wide-experts";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["Qwen2MoeForCausalLM"], "model_type": "qwen2_moe", "hidden_act": "silu",
           "hidden_size": 256, "intermediate_size": 512, "moe_intermediate_size": 192,
           "shared_expert_intermediate_size": 256, "num_experts": 15, "num_experts_per_tok": 4,
           "norm_topk_prob": true, "decoder_sparse_step": 1, "mlp_only_layers": [],
           "num_attention_heads": 4, "num_key_value_heads": 2, "num_hidden_layers": 3,
           "vocab_size": {}, "max_position_embeddings": 256, "rms_norm_eps": 1e-6,
           "rope_theta": 10000.0, "use_sliding_window": false, "sliding_window": null,
           "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false}})",
      kVocab);
  return folder.string();
}

// Columns of every expert, or eight whole ones and seven, on memory full of NaN, replayed and not.
// Rounding swaps experts here and there: nine of ten positions are near.
TEST(RanksCuda, AWideMixtureInBf16IsNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions on_cpu = whole_options(wide_mixture(), DeviceChoice::kCpu, DType::kF32);
  on_cpu.load.format = LoadFormat::kDummy;
  auto cpu = ModelUnderTest::load(on_cpu);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto all = requests(120);
  const auto expected = cpu->answer(all);
  ASSERT_TRUE(expected.ok());
  for (const bool whole_experts : {false, true}) {
    for (const bool graphs : {true, false}) {
      StackOptions options = split_options(wide_mixture(), DType::kBF16);
      options.load.format = LoadFormat::kDummy;
      options.device.enable_expert_parallel = whole_experts;
      options.runner.graphs = options.runner.graphs_at_start = graphs;
      options.runner.poison_workspace = options.runner.poison_kv = true;
      auto split = ModelUnderTest::load(options);
      ASSERT_TRUE(split.ok()) << split.status().message();
      const auto actual = split->answer(all);
      ASSERT_TRUE(actual.ok()) << actual.status().message();
      std::vector<double> of_all;
      for (size_t i = 0; i < all.size(); ++i) {
        const Outcome &want = (*expected)[i], &got = (*actual)[i];
        EXPECT_EQ(got.tokens.size(), static_cast<size_t>(kNewTokens));
        for (const auto& some : {distances(want.prompt_logprobs, got.prompt_logprobs),
                                 distances(want.logprobs, got.logprobs)}) {
          of_all.insert(of_all.end(), some.begin(), some.end());
        }
      }
      std::ranges::sort(of_all);
      EXPECT_LE(of_all[of_all.size() * 9 / 10], 0.1) << whole_experts << graphs;
    }
  }
}

// With --batch-invariant a row is alike alone and among others; ranks change nothing of that.
TEST(RanksCuda, InvariantRowsAreAlikeAloneAndTogether) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions options = split_options(wide_model(), DType::kBF16);
  options.load.format = LoadFormat::kDummy;
  options.device.batch_invariant = true;
  options.engine.scheduler.enable_prefix_caching = false;
  auto split = ModelUnderTest::load(options);
  ASSERT_TRUE(split.ok()) << split.status().message();
  const auto all = requests(120);
  const auto together = split->answer(all);
  ASSERT_TRUE(together.ok());
  for (size_t i = 0; i < all.size(); ++i) {
    const auto alone = split->answer(all[i]);
    ASSERT_TRUE(alone.ok());
    expect_same((*together)[i], *alone, std::to_string(i));
  }
}

}  // namespace
}  // namespace headrace::ranks_cuda_test
