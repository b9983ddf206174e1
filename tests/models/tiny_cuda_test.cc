// Tiny random models of every architecture on the GPU and on the CPU: the same answers in fp32, and
// near ones in bf16. Steps overlap and decodes are replayed graphs, as in the program.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <string>

#include "../golden/model_under_test.h"
#include "base/rng.h"
#include "cpu_models_fixture.h"
#include "logprob_distance.h"
#include "tensor/allocation_count.h"
#include "tensor/device.h"
#include "weights/safetensors.h"

namespace headrace::tiny_cuda_test {
namespace {

constexpr const char* kFolder = "tests/data/models";
constexpr int32_t kVocab = 96;  // of all of them
constexpr int32_t kLength = 120;
constexpr int32_t kNewTokens = 24;

std::vector<std::string> all_model_paths() {
  std::vector<std::string> paths;
  for (const auto& entry : std::filesystem::directory_iterator(kFolder)) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Of those that a GPU takes.
std::vector<std::string> model_paths() {
  std::vector<std::string> paths = all_model_paths();
  std::erase_if(paths, is_of_cpus_alone);
  return paths;
}

StackOptions options_of(const std::string& path, DeviceChoice device, std::optional<DType> dtype) {
  return {.model = path,
          .device = {.choice = device, .threads = 2},
          .load = {.dtype = dtype},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
          .memory = {.kv_cache_memory_bytes = 64 << 20},
          .runner = {.graphs_at_start = true}};
}

// Everything that sampling knows, in eight requests that run together.
std::vector<TestRequest> requests(int32_t length_max) {
  std::vector<TestRequest> requests;
  Rng rng(21);
  for (int i = 0; i < 8; ++i) {
    const int32_t length = 1 + (length_max - kNewTokens - 1) * i / 7;
    TestRequest request;
    for (int32_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    SamplingParams& sampling = request.sampling;
    sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    sampling.logprobs = 3;
    sampling.prompt_logprobs = i % 2 == 0 ? 3 : -1;
    sampling.seed = static_cast<uint64_t>(i);
    if (i == 1) sampling.temperature = 0.8f;
    if (i == 2) sampling.repetition_penalty = 1.3f;
    if (i == 3) sampling.frequency_penalty = 0.6f, sampling.presence_penalty = 0.3f;
    if (i == 4) sampling.logit_bias = {{5, 3.0f}, {7, -100.0f}};
    if (i == 5) sampling.temperature = 1.1f, sampling.top_k = 8, sampling.top_p = 0.9f;
    if (i == 6) sampling.stop_token_ids = {3, 4, 5}, sampling.min_tokens = 12;
    if (i == 7) sampling.temperature = 0.9f, sampling.min_p = 0.1f;
    requests.push_back(std::move(request));
  }
  return requests;
}

double distance(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b) {
  const std::vector<double> all = logprob_distances(a, b);
  return all.empty() ? 0 : *std::ranges::max_element(all);
}
// In 16 bits, rounding swaps experts of a mixture here and there, and each swap is a step: of these
// models the nearest eight of ten positions count. Where layers keep states, too, a swap is felt
// by what follows, and where an index chooses keys, rounding swaps these as well: half of them.
// Delta rules' states (transformers in F16 is up to 0.18 from itself) and Gemma 3n's streams do so.
double rounded_distance(const ModelConfig& config, const std::vector<TokenLogprobs>& a,
                        const std::vector<TokenLogprobs>& b) {
  std::vector<double> all = logprob_distances(a, b);
  if (all.empty()) return 0;
  std::ranges::sort(all);
  if (config.experts.count == 0) {
    const auto deltas = std::ranges::count(config.mixers.by_layer, LayerMixer::kDeltaNet);
    const bool feels = deltas > 0 || config.mixers.gemma.streams > 0;
    return feels ? all[(all.size() - 1) * 8 / 10] : all.back();
  }
  const bool swaps_more = has_states(config) || config.mixers.latent.index_heads > 0;
  return all[(all.size() - 1) * (swaps_more ? 5 : 8) / 10];
}

TEST(TinyCuda, WhatHasNoKernelsIsRefusedByName) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int32_t refused = 0;
  for (const std::string& path : all_model_paths()) {
    if (!is_of_cpus_alone(path)) continue;
    SCOPED_TRACE(path);
    const auto model = ModelUnderTest::load(options_of(path, DeviceChoice::kGpu, DType::kF32));
    EXPECT_TRUE(is_refused_on_a_gpu(model.status())) << model.status().message();
    ++refused;
  }
  EXPECT_GE(refused, 1);
}

TEST(TinyCuda, AnswersInFloat32AreTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string& path : model_paths()) {
    SCOPED_TRACE(path);
    auto cpu = ModelUnderTest::load(options_of(path, DeviceChoice::kCpu, DType::kF32));
    auto gpu = ModelUnderTest::load(options_of(path, DeviceChoice::kGpu, DType::kF32));
    ASSERT_TRUE(cpu.ok()) << cpu.status().message();
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    const auto all = requests(std::min(cpu->stack().info().max_model_len, kLength));
    const auto expected = cpu->answer(all), actual = gpu->answer(all);
    ASSERT_TRUE(expected.ok() && actual.ok());
    int different = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      const Outcome &want = (*expected)[i], &got = (*actual)[i];
      different += want.tokens == got.tokens ? 0 : 1;
      EXPECT_EQ(want.prompt_logprobs.size(), got.prompt_logprobs.size()) << i;
      EXPECT_LE(distance(want.prompt_logprobs, got.prompt_logprobs), 2e-3) << i;
      EXPECT_LE(distance(want.logprobs, got.logprobs), 2e-3) << i;
      EXPECT_NE(got.finish, FinishReason::kFault) << i;
    }
    // Two logits of a random model may be as near as rounding.
    EXPECT_LE(different, 1);
  }
}

// The same two of each window, greedy, so that a token that is counted wrongly shows: more requests
// than there are slots.
std::vector<TestRequest> windowed_requests() {
  std::vector<TestRequest> requests;
  Rng rng(23);
  std::vector<std::vector<TokenId>> prompts(2);
  for (std::vector<TokenId>& prompt : prompts) {
    prompt.resize(static_cast<size_t>(20 + rng.below(30)));
    for (TokenId& token : prompt) token = static_cast<TokenId>(rng.below(kVocab));
  }
  for (const int32_t window : {-1, 1, 2, 5, 16, 33, 64, 1 << 30}) {
    for (const bool repetition : {true, false}) {
      TestRequest& request = requests.emplace_back(TestRequest{.prompt = prompts[repetition]});
      request.sampling = {.temperature = 0, .max_tokens = 60, .ignore_eos = true};
      request.sampling.repetition_penalty = repetition ? 1.6f : 1.0f;
      request.sampling.frequency_penalty = repetition ? 0.0f : 0.45f;
      request.sampling.presence_penalty = 0.3f;
      request.sampling.penalty_window = window;
    }
  }
  return requests;
}

TEST(TinyCuda, PenaltiesInWindowsAreTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  const std::vector<TestRequest> all = windowed_requests();
  for (const char* name : {"/llama", "/gemma3", "/qwen2-moe"}) {
    const std::string path = std::string(kFolder) + name;
    SCOPED_TRACE(path);
    std::vector<std::vector<Outcome>> outcomes;
    for (const DeviceChoice device : {DeviceChoice::kCpu, DeviceChoice::kGpu}) {
      StackOptions options = options_of(path, device, DType::kF32);
      options.memory.max_model_len = kLength;
      if (device == DeviceChoice::kGpu) {  // sequences are preempted, and come back in other slots
        auto whole = ModelUnderTest::load(options);
        ASSERT_TRUE(whole.ok()) << whole.status().message();
        const StackInfo& info = whole->stack().info();
        options.memory.kv_cache_memory_bytes = info.kv_bytes / info.block_count * 32;
      }
      auto model = ModelUnderTest::load(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      auto answers = model->answer(all);
      ASSERT_TRUE(answers.ok()) << answers.status().message();
      outcomes.push_back(std::move(*answers));
    }
    int different = 0;
    for (size_t i = 0; i < all.size(); ++i) {
      different += outcomes[0][i].tokens == outcomes[1][i].tokens ? 0 : 1;
    }
    EXPECT_LE(different, 1);                                  // logits as near as rounding
    EXPECT_NE(outcomes[1][2].tokens, outcomes[1][0].tokens);  // of other windows
  }
}

// Of prompts in 16 bits on the GPU, as `options` say, to fp32 on the CPU.
void expect_model_near(const StackOptions& options, double distance_max) {
  const std::string& path = options.model;
  SCOPED_TRACE(path);
  auto cpu = ModelUnderTest::load(options_of(path, DeviceChoice::kCpu, DType::kF32));
  auto gpu = ModelUnderTest::load(options);
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  ASSERT_TRUE(gpu.ok()) << gpu.status().message();
  const auto all = requests(std::min(cpu->stack().info().max_model_len, kLength));
  const auto expected = cpu->answer(all), actual = gpu->answer(all);
  ASSERT_TRUE(expected.ok() && actual.ok());
  for (size_t i = 0; i < all.size(); ++i) {
    const Outcome &want = (*expected)[i], &got = (*actual)[i];
    EXPECT_LE(rounded_distance(cpu->stack().config(), want.prompt_logprobs, got.prompt_logprobs),
              distance_max)
        << i;
    EXPECT_EQ(want.prompt_logprobs.size(), got.prompt_logprobs.size()) << i;
    EXPECT_NE(got.finish, FinishReason::kFault) << i;
  }
}

// The same for every architecture.
void expect_near(DType dtype, double distance_max, const std::vector<std::string>& preferred = {}) {
  for (const std::string& path : model_paths()) {
    StackOptions options = options_of(path, DeviceChoice::kGpu, dtype);
    options.prefer_kernels = preferred;
    expect_model_near(options, distance_max);
  }
}

TEST(TinyCuda, AnswersInBf16AreNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_near(DType::kBF16, 0.5);
}

// Three more bits of mantissa than BF16 has.
TEST(TinyCuda, AnswersInF16AreNearer) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_near(DType::kF16, 0.1);
}

// GPTQ, AWQ and compressed-tensors as block types, which such small models become only when asked.
TEST(TinyCuda, QuantisedModelsStayPacked) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* name : {"/qwen2-gptq", "/llama-gptq8", "/qwen3-awq", "/llama-compressed"}) {
    for (const auto& [dtype, distance_max] : {std::pair(DType::kBF16, 0.5), {DType::kF16, 0.1}}) {
      StackOptions options = options_of(std::string(kFolder) + name, DeviceChoice::kGpu, dtype);
      options.load.block_weights = BlockWeights::kPacked;
      const bool float8 = options.model.ends_with("llama-compressed");  // so are some of its rows
      expect_model_near(options, float8 ? 0.5 : distance_max);
    }
  }
}

// Weights and activations of 4 significant bits: of a model of 64 columns, whose log-probabilities
// are units apart.
TEST(TinyCuda, ModelsMadeFp8AreNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* name :
       {"/llama", "/qwen2", "/phi3", "/gemma3", "/llama-biases", "/starcoder2"}) {
    StackOptions options =
        options_of(std::string(kFolder) + name, DeviceChoice::kGpu, DType::kBF16);
    options.load.quantise_to = DType::kF8;
    expect_model_near(options, 2.0);
  }
}

// A layer of a small model in few launches (ops/linear/resident.h, residual_linear.h).
const std::vector<std::string> kFewLaunches = {
    "norm_linear/cuda/resident_any_rows", "norm_gated_linear/cuda/resident_any_rows",
    "residual_linear/accumulated_any_rows", "linear/cuda/resident", "gated_linear/cuda/resident"};

TEST(TinyCuda, AnswersInFewLaunchesAreAsNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_near(DType::kBF16, 0.5, kFewLaunches);
  expect_near(DType::kF16, 0.1, kFewLaunches);
}

// Rows of padding compute on whatever is there; nothing of it comes into another row, and no kernel
// reads scratch memory that this step did not write, nor keys and values that none has.
TEST(TinyCuda, PoisonedMemoryChangesNoToken) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* name :
       {"/llama", "/gemma3", "/gemma3n", "/gemma4", "/gemma4-moe", "/phi3", "/qwen2-moe",
        "/deepseek32", "/glm-dsa-shared", "/rwkv7", "/recurrent-gemma", "/bloom", "/mimo2"}) {
    const std::string path = std::string(kFolder) + name;
    SCOPED_TRACE(path);
    auto all = requests(kLength);
    all.resize(5);  // padded to 8 rows
    std::vector<std::vector<Outcome>> outcomes;
    for (const bool poison : {false, true}) {
      StackOptions options = options_of(path, DeviceChoice::kGpu, DType::kF32);
      options.runner.poison_workspace = options.runner.poison_kv = poison;
      auto model = ModelUnderTest::load(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      outcomes.push_back(model->answer(all).value());
    }
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(outcomes[0][i].tokens, outcomes[1][i].tokens) << i;
      EXPECT_NE(outcomes[1][i].finish, FinishReason::kFault) << i;
    }
  }
}

TEST(TinyCuda, NothingIsAllocatedOnceReady) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  auto model = ModelUnderTest::load(
      options_of(std::string(kFolder) + "/llama", DeviceChoice::kGpu, std::nullopt));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t allocations = allocation_count();
  EXPECT_GT(allocations, 0);
  ASSERT_TRUE(model->answer(requests(kLength)).ok());
  EXPECT_EQ(allocation_count(), allocations);
  const auto memory = model->stack().gpu_memory();
  ASSERT_TRUE(memory.has_value());
  EXPECT_LT(std::abs(memory->difference()), 0.5);  // of little: libraries' own are most of it
}

// The switches that leave parts of the machinery out change nothing.
TEST(TinyCuda, GraphsAndOverlapChangeNoToken) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  const std::string path = std::string(kFolder) + "/llama";
  const auto all = requests(kLength);
  std::vector<std::vector<Outcome>> outcomes;
  for (const bool graphs : {true, false}) {
    for (const bool overlap : {true, false}) {
      StackOptions options = options_of(path, DeviceChoice::kGpu, DType::kF32);
      options.runner.graphs = graphs;
      options.device.overlap = overlap;
      auto model = ModelUnderTest::load(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
      outcomes.push_back(model->answer(all).value());
    }
  }
  for (size_t i = 0; i < all.size(); ++i) {
    for (const auto& other : outcomes) EXPECT_EQ(other[i].tokens, outcomes[0][i].tokens) << i;
  }
}

// Recorded steps of more rows than logits are made for at a time, and full steps of padding before
// the first request.
TEST(TinyCuda, RecordingsOfManySequencesAndFullStepTrialsChangeNoToken) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  std::vector<TestRequest> all;
  while (all.size() < 300) {
    for (TestRequest& request : requests(kLength)) all.push_back(std::move(request));
  }
  std::vector<std::vector<Outcome>> outcomes;
  for (const bool more : {false, true}) {
    StackOptions options =
        options_of(std::string(kFolder) + "/llama", DeviceChoice::kGpu, DType::kF32);
    options.batch.max_num_seqs = static_cast<int32_t>(all.size());
    options.batch.max_num_batched_tokens = 1500;
    options.runner.recorded_rows_max = more ? 1024 : 256;
    options.runner.full_step_trials = more;
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    outcomes.push_back(model->answer(all).value());
  }
  for (size_t i = 0; i < all.size(); ++i) {
    EXPECT_EQ(outcomes[0][i].tokens, outcomes[1][i].tokens) << i;
    EXPECT_NE(outcomes[1][i].finish, FinishReason::kFault) << i;
  }
}

// Two layers of some head size, with norms of heads where it is a Qwen3, for dummy weights.
std::string model_of_head_size(const std::string& type, int32_t head_dim) {
  const std::filesystem::path from = std::filesystem::path(kFolder) / type / "config.json";
  std::ifstream in(from);
  std::string config{std::istreambuf_iterator<char>(in), {}};
  const std::string size = "\"head_dim\": 16";
  config.replace(config.find(size), size.size(), "\"head_dim\": " + std::to_string(head_dim));
  const std::filesystem::path to =
      std::filesystem::path(testing::TempDir()) / (type + "-d" + std::to_string(head_dim));
  std::filesystem::create_directories(to);
  std::ofstream(to / "config.json") << config;
  return to.string();
}

// Decode attention that rotates its queries and stores the newest keys computes what two kernels
// do, in recorded steps and in others, on rows of poison. One request at a time: in company, steps
// differ from run to run, and 16 bits with them.
TEST(TinyCuda, RowsMadeInAttentionChangeNoToken) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* type : {"llama", "qwen3"}) {
    for (const int32_t head_dim : {64, 128, 256}) {
      const std::string path = model_of_head_size(type, head_dim);
      SCOPED_TRACE(path);
      const std::string kernel = "rope_attention/cuda/d" + std::to_string(head_dim) + "_any_rows";
      for (const bool graphs : {true, false}) {
        std::vector<std::vector<TokenId>> tokens[2];
        for (const bool preferred : {false, true}) {
          StackOptions options = options_of(path, DeviceChoice::kGpu, DType::kBF16);
          options.load.format = LoadFormat::kDummy;
          options.runner.graphs = options.runner.graphs_at_start = graphs;
          options.runner.gemm_trials = false;
          options.runner.poison_workspace = options.runner.poison_kv = true;
          options.prefer_kernels = {preferred ? kernel : "rope_attention/two_ops"};
          auto model = ModelUnderTest::load(options);
          ASSERT_TRUE(model.ok()) << model.status().message();
          for (const TestRequest& request : requests(kLength)) {
            const Outcome answer = model->answer(request).value();
            EXPECT_NE(answer.finish, FinishReason::kFault);
            tokens[preferred ? 1 : 0].push_back(answer.tokens);
          }
        }
        EXPECT_EQ(tokens[0], tokens[1]) << (graphs ? "recorded" : "eager");
      }
    }
  }
}

// Keys and values of fewer bits than activations have. Latents, and values of another size than
// keys, are refused by name.
class TinyCudaKv : public testing::TestWithParam<KvFormat> {
 protected:
  static StackOptions with_format(StackOptions options) {
    options.kv_formats.both = GetParam();
    return options;
  }
};
INSTANTIATE_TEST_SUITE_P(Formats, TinyCudaKv,
                         testing::Values(KvFormat::kFp8, KvFormat::kInt8, KvFormat::kInt4),
                         [](const auto& of) {
                           return std::string(name_of(kKvFormats, std::optional(of.param)));
                         });

TEST_P(TinyCudaKv, KeysAndValuesAreNear) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  int near = 0;
  for (const std::string& path : model_paths()) {
    const auto options = with_format(options_of(path, DeviceChoice::kGpu, DType::kF16));
    const auto model = ModelUnderTest::load(options);
    if (!model.ok()) {
      const std::string message = model.status().message();
      EXPECT_TRUE(message.find("keep latents, which are not kept in") != std::string::npos ||
                  message.find("two sizes, which are not kept in") != std::string::npos ||
                  (GetParam() == KvFormat::kInt4 &&
                   message.find("of which 32 at a time are kept in 4 bits") != std::string::npos))
          << message;
      continue;
    }
    if (GetParam() == KvFormat::kInt4) continue;  // far off: heads are too small for so few steps
    // Three bits of mantissa in models of 32 columns: far off where a random model is sharp. That
    // kernels compute on what is kept is what the tests behind this one see.
    expect_model_near(options, GetParam() == KvFormat::kFp8 ? 5.0 : 2.0);
    ++near;
  }
  if (GetParam() != KvFormat::kInt4) {
    EXPECT_GT(near, 60);
  }
}

// Decode and prompts of each head size, by the fast kernels and by the slow one, of which nothing
// is unpacked.
TEST_P(TinyCudaKv, KernelsAgree) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const char* type : {"llama", "gemma2", "gpt-oss"}) {
    for (const int32_t head_dim : {64, 80, 96, 128, 256}) {
      if (GetParam() == KvFormat::kInt4 && head_dim == 80) continue;
      StackOptions options = with_format(
          options_of(model_of_head_size(type, head_dim), DeviceChoice::kGpu, DType::kF16));
      SCOPED_TRACE(options.model);
      options.load.format = LoadFormat::kDummy;
      auto fast = ModelUnderTest::load(options);
      options.prefer_kernels = {"attention/cuda/reference"};
      auto slow = ModelUnderTest::load(options);
      ASSERT_TRUE(fast.ok()) << fast.status().message();
      ASSERT_TRUE(slow.ok()) << slow.status().message();
      const auto all = requests(kLength);
      const auto got = fast->answer(all).value(), want = slow->answer(all).value();
      for (size_t i = 0; i < all.size(); ++i) {
        const ModelConfig& config = fast->stack().config();
        EXPECT_LE(rounded_distance(config, want[i].logprobs, got[i].logprobs), 0.3) << i;
        EXPECT_LE(rounded_distance(config, want[i].prompt_logprobs, got[i].prompt_logprobs), 0.3)
            << i;
        EXPECT_NE(got[i].finish, FinishReason::kFault) << i;
      }
    }
  }
}

// Together, alone, in chunks, with proposals, without recordings, behind a cached beginning, and
// preempted and swapped out, while what nothing may read of the cache is NaN: a row attends what is
// kept of it, so that with --batch-invariant its bits are its own.
TEST_P(TinyCudaKv, RowsAreBitEqualHoweverTheyCome) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  constexpr std::pair<const char*, int32_t> kModels[] = {
      {"llama", 64},   {"qwen3", 128}, {"gemma2", 256}, {"gemma3", 64},
      {"gpt-oss", 64}, {"llama", 80},  {"qwen3", 96},   {"llama", 100}};
  for (const auto& [type, head_dim] : kModels) {
    if (GetParam() == KvFormat::kInt4 && head_dim % 32 != 0) continue;
    StackOptions options = with_format(
        options_of(model_of_head_size(type, head_dim), DeviceChoice::kGpu, std::nullopt));
    SCOPED_TRACE(options.model);
    options.load.format = LoadFormat::kDummy;
    options.device.batch_invariant = true;
    options.engine.scheduler.enable_prefix_caching = false;
    const auto all = requests(kLength);
    auto together = ModelUnderTest::load(options);
    ASSERT_TRUE(together.ok()) << together.status().message();
    const auto expected = together->answer(all).value();
    const auto expect_equal = [&](const char* how, const std::vector<Outcome>& outcomes) {
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ(expected[i].tokens, outcomes[i].tokens) << how << i;
        EXPECT_EQ(distance(expected[i].logprobs, outcomes[i].logprobs), 0.0) << how << i;
      }
    };
    std::vector<Outcome> alone;
    for (const TestRequest& request : all) alone.push_back(together->answer(request).value());
    expect_equal("alone ", alone);
    const auto expect_equal_with = [&](const char* how, const auto& change) {
      StackOptions changed = options;
      changed.runner.poison_kv = true;
      change(changed);
      auto model = ModelUnderTest::load(changed);
      ASSERT_TRUE(model.ok()) << how << model.status().message();
      expect_equal(how, model->answer(all).value());
      expect_equal(how, model->answer(all).value());
      const SchedulerStats stats = model->stack().engine().stats().scheduler;
      if (changed.tiers.host_gib > 0) {
        EXPECT_GT(stats.preemptions, 0u) << how;
        EXPECT_GT(stats.pages_moved.loaded, 0u) << how;
      }
      if (changed.engine.scheduler.enable_prefix_caching && changed.tiers.host_gib == 0) {
        EXPECT_GT(stats.prefix_cache_hits, 0u) << how;
      }
    };
    expect_equal_with("chunks ", [](StackOptions& o) { o.batch.max_num_batched_tokens = 19; });
    expect_equal_with("eager ", [](StackOptions& o) {
      o.runner.graphs = o.runner.graphs_at_start = false;
      o.runner.poison_workspace = true;
    });
    expect_equal_with("proposals ", [](StackOptions& o) {
      o.engine.scheduler.proposals = {
          .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
    });
    expect_equal_with("cached ",
                      [](StackOptions& o) { o.engine.scheduler.enable_prefix_caching = true; });
    const StackInfo& info = together->stack().info();
    const int64_t page_bytes = info.kv_bytes / info.block_count;
    const auto groups = std::ssize(together->stack().engine().options().scheduler.groups);
    expect_equal_with("swap ", [&](StackOptions& o) {
      o.engine.scheduler.enable_prefix_caching = true;
      o.engine.scheduler.admission_headroom = 0;
      o.memory.max_model_len = kLength + kNewTokens;
      o.memory.kv_cache_memory_bytes = 12 * groups * page_bytes;  // of one request, or two
      o.tiers = {.host_gib = 0.05, .mode = PreemptionMode::kSwap};
    });
  }
}

constexpr TokenId kFaulty = kVocab - 1;

// A copy of the tiny Llama whose embedding of kFaulty is NaN.
std::string model_with_a_nan_row() {
  const std::filesystem::path from = std::filesystem::path(kFolder) / "llama";
  const std::filesystem::path to = std::filesystem::path(testing::TempDir()) / "nan-row";
  std::filesystem::create_directories(to);
  for (const char* name : {"config.json", "model.safetensors"}) {
    std::filesystem::copy_file(from / name, to / name,
                               std::filesystem::copy_options::overwrite_existing);
  }
  const auto file = SafetensorsFile::open((from / "model.safetensors").string()).value();
  const SafetensorsTensor& table = *file->find("model.embed_tokens.weight");
  const size_t row_bytes = table.bytes.size() / kVocab;
  std::fstream out(to / "model.safetensors", std::ios::in | std::ios::out | std::ios::binary);
  out.seekp(table.bytes.data() - file->bytes().data() +
            static_cast<std::ptrdiff_t>(kFaulty * row_bytes));
  out << std::string(row_bytes, '\xff');
  return to.string();
}

// A request whose row is NaN ends with a fault; those beside it answer as beside one that is well.
// (Kernel by kernel: ops/nan_rows_cuda_test.cc. Requests reach their first step in different
// company each time, so equal bits need --batch-invariant here.)
// Prompts that end and go on within a cached page: what a sequence writes goes into its own copy.
TEST(TinyCuda, ACachedBeginningChangesNoToken) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  std::vector<TestRequest> all = requests(kLength);
  for (TestRequest& request : all) {
    request.sampling.prompt_logprobs = -1;  // such a prompt is computed whole
    const size_t shared = std::min(request.prompt.size(), all.back().prompt.size()) * 2 / 3;
    std::copy_n(all.back().prompt.begin(), shared, request.prompt.begin());
  }
  StackOptions options =
      options_of(std::string(kFolder) + "/llama", DeviceChoice::kGpu, DType::kF32);
  options.engine.scheduler.enable_prefix_caching = false;
  auto without = ModelUnderTest::load(options);
  ASSERT_TRUE(without.ok()) << without.status().message();
  const auto expected = without->answer(all).value();
  options.engine.scheduler.enable_prefix_caching = true;
  auto with = ModelUnderTest::load(options);
  ASSERT_TRUE(with.ok()) << with.status().message();
  for (int turn = 0; turn < 3; ++turn) {
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(with->answer(all[i]).value().tokens, expected[i].tokens) << turn << ", " << i;
    }
    const auto together = with->answer(all).value();
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ(together[i].tokens, expected[i].tokens) << turn << ", " << i;
    }
  }
  EXPECT_GT(with->stack().engine().stats().scheduler.prefix_cache_hits, 0u);
}

TEST(TinyCuda, ANanStaysInItsRequest) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  const std::string path = model_with_a_nan_row();
  std::vector<std::vector<Outcome>> outcomes;
  for (const TokenId last : {TokenId{7}, kFaulty}) {
    std::vector<TestRequest> all;
    for (int i = 0; i < 8; ++i) {
      TestRequest request{.prompt = {1, 20 + i, 30, 40 - i}, .sampling = {}};
      request.sampling = {.temperature = i % 2 == 0 ? 0.0f : 0.8f, .max_tokens = kNewTokens};
      request.sampling.ignore_eos = true;
      request.sampling.seed = static_cast<uint64_t>(i);
      request.sampling.logprobs = 3;
      request.sampling.logit_bias = {{kFaulty, -100.0f}};  // nobody else meets it
      all.push_back(std::move(request));
    }
    all[3].prompt.back() = last;
    StackOptions options = options_of(path, DeviceChoice::kGpu, DType::kF32);
    options.device.batch_invariant = true;
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    outcomes.push_back(model->answer(all).value());
  }
  EXPECT_EQ(outcomes[0][3].finish, FinishReason::kLength);
  EXPECT_EQ(outcomes[1][3].finish, FinishReason::kFault);
  EXPECT_TRUE(outcomes[1][3].tokens.empty());
  for (size_t i = 0; i < 8; ++i) {
    if (i == 3) continue;
    const Outcome &want = outcomes[0][i], &got = outcomes[1][i];
    EXPECT_EQ(got.tokens, want.tokens) << i;
    ASSERT_EQ(got.logprobs.size(), want.logprobs.size()) << i;
    for (size_t t = 0; t < want.logprobs.size(); ++t) {
      EXPECT_EQ(got.logprobs[t].logprob, want.logprobs[t].logprob) << i << " " << t;
    }
  }
}

// With --batch-invariant a row's bits are its sequence's own: together, alone, cut otherwise, and
// where tokens are proposed and verified, which they are not where layers keep states.
void expect_bit_equal(const std::vector<std::string>& preferred) {
  for (const char* name :
       {"/llama", "/gemma3", "/gemma3n", "/gemma4", "/gemma4-moe", "/phi3", "/qwen2-moe",
        "/mixtral", "/deepseek32", "/glm-dsa-shared", "/rwkv7", "/recurrent-gemma"}) {
    SCOPED_TRACE(name);
    StackOptions options =
        options_of(std::string(kFolder) + name, DeviceChoice::kGpu, std::nullopt);
    options.device.batch_invariant = true;
    options.engine.scheduler.enable_prefix_caching = false;
    options.prefer_kernels = preferred;
    const auto all = requests(kLength);
    auto together = ModelUnderTest::load(options);
    ASSERT_TRUE(together.ok()) << together.status().message();
    const auto expected = together->answer(all).value();
    std::vector<Outcome> alone;
    for (const TestRequest& request : all) {
      alone.push_back(together->answer(request).value());
    }
    options.batch.max_num_batched_tokens = 19;
    auto chunked = ModelUnderTest::load(options);
    ASSERT_TRUE(chunked.ok()) << chunked.status().message();
    const auto cut = chunked->answer(all).value();
    options.batch.max_num_batched_tokens = 64;
    options.engine.scheduler.proposals = {
        .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
    auto proposing = ModelUnderTest::load(options);
    ASSERT_TRUE(proposing.ok()) << proposing.status().message();
    const auto verified = proposing->answer(all).value();
    const uint64_t proposed = proposing->stack().engine().stats().scheduler.proposals.proposed;
    EXPECT_EQ(proposed > 0, !has_states(proposing->stack().config()));
    for (size_t i = 0; i < all.size(); ++i) {
      for (const Outcome* other : std::vector<const Outcome*>{&alone[i], &cut[i], &verified[i]}) {
        EXPECT_EQ(expected[i].tokens, other->tokens) << i;
        EXPECT_EQ(distance(expected[i].logprobs, other->logprobs), 0.0) << i;
        EXPECT_EQ(distance(expected[i].prompt_logprobs, other->prompt_logprobs), 0.0) << i;
      }
    }
  }
}

TEST(TinyCuda, BatchInvariantRowsAreBitEqual) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_bit_equal({});
}

TEST(TinyCuda, BatchInvariantRowsInFewLaunchesAreBitEqual) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_bit_equal(kFewLaunches);
}

}  // namespace
}  // namespace headrace::tiny_cuda_test
