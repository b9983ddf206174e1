// Models whose layers are shared out over GPUs: the answers of one, bit for bit. The second stage
// is on the second GPU, or beside the first where there is one.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <string>

#include <fmt/format.h>

#include "../golden/model_under_test.h"
#include "../golden/same_outcome.h"
#include "base/rng.h"
#include "cpu_models_fixture.h"
#include "tensor/device.h"

namespace headrace::stages_cuda_test {
namespace {

constexpr int32_t kVocab = 96;  // of all models
constexpr int32_t kNewTokens = 24, kBlockTokens = 16;

// Of `stages` stages on the GPUs that there are, in turn.
std::vector<int> gpus_of(int32_t stages) {
  const bool second = create_cuda_device(1, 1).ok();
  std::vector<int> gpus;
  for (int32_t s = 0; s < stages; ++s) gpus.push_back(second ? s % 2 : 0);
  return gpus;
}

StackOptions whole_options(const std::string& path) {
  StackOptions options{.model = path,
                       .device = {.choice = DeviceChoice::kGpu, .threads = 2},
                       .load = {.dtype = DType::kBF16},
                       .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
                       .memory = {.kv_cache_memory_bytes = 64 << 20},
                       .runner = {.graphs_at_start = true}};
  options.device.batch_invariant = true;
  return options;
}

StackOptions staged_options(const std::string& path, int32_t stages) {
  StackOptions options = whole_options(path);
  options.device.pipeline_parallel_size = stages;
  options.device.gpus = gpus_of(stages);
  return options;
}

std::vector<TestRequest> requests(int32_t length_max) {
  std::vector<TestRequest> requests;
  Rng rng(23);
  for (int i = 0; i < 12; ++i) {
    TestRequest request;
    const int32_t length = 1 + (length_max - kNewTokens - 1) * (i % 8) / 7;
    for (int32_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    request.sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    request.sampling.logprobs = 3;
    request.sampling.prompt_logprobs = i % 2 == 0 ? 3 : -1;
    request.sampling.seed = static_cast<uint64_t>(i);
    if (i % 4 == 1) request.sampling.temperature = 0.8f;
    if (i % 6 == 2) request.sampling.repetition_penalty = 1.3f, request.sampling.penalty_window = 9;
    if (i % 6 == 5) request.sampling.logit_bias = {{5, 3.0f}, {7, -100.0f}};
    requests.push_back(std::move(request));
  }
  return requests;
}

bool is_refused(const Status& status) {
  const std::string why(status.message());
  return why.find("would have none that keeps") != why.npos ||
         why.find("leave rows to later ones") != why.npos;
}

// On pages and scratch memory full of NaN, which are few so that sequences are preempted.
TEST(StagesCuda, TinyModelsAnswerAsOne) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator("tests/data/models")) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path().string());
    }
  }
  std::erase_if(paths, is_of_cpus_alone);
  std::sort(paths.begin(), paths.end());
  int staged = 0;
  for (const std::string& path : paths) {
    SCOPED_TRACE(path);
    auto whole = ModelUnderTest::load(whole_options(path));
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    const StackInfo& info = whole->stack().info();
    const int32_t length = std::min(info.max_model_len, 120);
    StackOptions options = staged_options(path, 2);
    options.memory.max_model_len = length;
    options.memory.kv_cache_memory_bytes =
        5 * (length / kBlockTokens + 3) * info.kv_bytes / info.block_count;
    options.runner.poison_workspace = options.runner.poison_kv = true;
    options.runner.graphs = options.runner.graphs_at_start = staged % 2 == 0;
    auto split = ModelUnderTest::load(options);
    if (is_refused(split.status())) continue;
    ASSERT_TRUE(split.ok()) << split.status().message();
    ++staged;
    const auto all = requests(length);
    const auto expected = whole->answer(all), actual = split->answer(all);
    ASSERT_TRUE(expected.ok() && actual.ok()) << actual.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same((*actual)[i], (*expected)[i], "request " + std::to_string(i));
    }
  }
  EXPECT_GE(staged, 90);
}

// The folder of a configuration, for dummy weights.
std::string wide_model() {
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / "wide-stages";
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << fmt::format(
      R"({{"architectures": ["LlamaForCausalLM"], "model_type": "llama", "hidden_act": "silu",
           "hidden_size": 4096, "intermediate_size": 8192, "num_attention_heads": 32,
           "num_key_value_heads": 8, "head_dim": 128, "num_hidden_layers": 5, "vocab_size": {},
           "max_position_embeddings": 512, "rms_norm_eps": 1e-5, "rope_theta": 10000.0,
           "bos_token_id": 1, "eos_token_id": 2, "tie_word_embeddings": false}})",
      kVocab);
  return folder.string();
}

// Rows that fill pages and tiles, many turns, steps replayed and not.
TEST(StagesCuda, AWideModelAnswersAsOneTurnAfterTurn) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions whole = whole_options(wide_model());
  whole.load.format = LoadFormat::kDummy;
  auto one = ModelUnderTest::load(whole);
  ASSERT_TRUE(one.ok()) << one.status().message();
  const auto all = requests(400);
  const auto expected = one->answer(all);
  ASSERT_TRUE(expected.ok());
  for (const int32_t stages : {2, 3, 5}) {
    for (const bool graphs : {true, false}) {
      StackOptions options = staged_options(wide_model(), stages);
      options.load.format = LoadFormat::kDummy;
      options.runner.graphs = options.runner.graphs_at_start = graphs;
      auto split = ModelUnderTest::load(options);
      ASSERT_TRUE(split.ok()) << split.status().message();
      for (int turn = 0; turn < 10; ++turn) {
        const auto actual = split->answer(all);
        ASSERT_TRUE(actual.ok()) << actual.status().message();
        for (size_t i = 0; i < all.size(); ++i) {
          expect_same((*actual)[i], (*expected)[i],
                      fmt::format("{} stages, turn {}, request {}", stages, turn, i));
        }
      }
    }
  }
}

}  // namespace
}  // namespace headrace::stages_cuda_test
