// Models with heads of sizes that fast kernels take, which no tiny model's are, in the whole engine
// on a GPU: Gemma 4 with heads of 256 and 512, inputs of layers and experts; ALiBi; values narrower
// than keys. Dummy weights, answers beside the CPU's.
#include <gtest/gtest.h>

#include <algorithm>
#include <cmath>
#include <filesystem>
#include <fstream>
#include <iterator>
#include <mutex>
#include <set>
#include <string>
#include <string_view>
#include <utility>
#include <vector>

#include "../golden/model_under_test.h"
#include "base/rng.h"
#include "ops/op.h"
#include "tensor/device.h"

namespace headrace::head_sizes_cuda_test {
namespace {

constexpr int32_t kVocab = 96, kNewTokens = 12;

// The folder of a tiny model's configuration with other sizes.
std::string with_sizes(const std::string& tiny,
                       const std::vector<std::pair<std::string, std::string>>& sizes) {
  std::ifstream in("tests/data/models/" + tiny + "/config.json");
  std::string config{std::istreambuf_iterator<char>(in), {}};
  for (const auto& [from, to] : sizes) {
    EXPECT_NE(config.find(from), std::string::npos) << from;
    for (size_t at = 0; (at = config.find(from, at)) != std::string::npos; at += to.size()) {
      config.replace(at, from.size(), to);
    }
  }
  const std::filesystem::path folder = std::filesystem::path(testing::TempDir()) / ("wide-" + tiny);
  std::filesystem::create_directories(folder);
  std::ofstream(folder / "config.json") << config;
  return folder.string();
}

std::vector<std::string> gemmas() {
  return {with_sizes("gemma4",
                     {{"\"head_dim\": 32", "\"head_dim\": 512"},
                      {"\"head_dim\": 16", "\"head_dim\": 256"},
                      {"\"hidden_size\": 32", "\"hidden_size\": 256"},
                      {"\"hidden_size_per_layer_input\": 8", "\"hidden_size_per_layer_input\": 64"},
                      {"\"intermediate_size\": 48", "\"intermediate_size\": 512"}}),
          with_sizes("gemma4-moe",
                     {{"\"head_dim\": 16", "\"head_dim\": 256"},
                      {"\"global_head_dim\": 32", "\"global_head_dim\": 512"},
                      {"\"hidden_size\": 32", "\"hidden_size\": 256"},
                      {"\"intermediate_size\": 48", "\"intermediate_size\": 512"},
                      {"\"moe_intermediate_size\": 24", "\"moe_intermediate_size\": 192"}})};
}

// Whose scores lean, with heads of 128 and of 64.
std::string bloom() {
  return with_sizes("bloom", {{"\"hidden_size\": 48", "\"hidden_size\": 512"},
                              {"\"n_head\": 6", "\"n_head\": 4"}});
}
std::string mpt() {
  return with_sizes(
      "mpt", {{"\"d_model\": 48", "\"d_model\": 256"}, {"\"n_heads\": 6", "\"n_heads\": 4"}});
}
// With 16 query heads of a key head.
std::string mimo2() {
  return with_sizes("mimo2", {{"\"head_dim\": 24", "\"head_dim\": 192"},
                              {"\"v_head_dim\": 16", "\"v_head_dim\": 128"},
                              {"\"hidden_size\": 32", "\"hidden_size\": 256"},
                              {"\"num_attention_heads\": 4", "\"num_attention_heads\": 16"}});
}

StackOptions options_of(const std::string& model, DeviceChoice device, DType dtype) {
  return {.model = model,
          .device = {.choice = device, .threads = 2},
          .load = {.format = LoadFormat::kDummy, .dtype = dtype},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 128},
          .memory = {.kv_cache_memory_bytes = 128 << 20},
          .engine = {.scheduler = {.enable_prefix_caching = false}},
          .runner = {.graphs_at_start = true, .gemm_trials = false}};
}

std::vector<TestRequest> requests() {
  std::vector<TestRequest> requests;
  Rng rng(5);
  for (int i = 0; i < 7; ++i) {  // padded to 8 rows
    TestRequest request;
    for (int t = 0; t < 3 + 30 * i; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
    }
    request.sampling = {.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    request.sampling.logprobs = 3;
    request.sampling.prompt_logprobs = i % 2 == 0 ? 3 : -1;
    requests.push_back(std::move(request));
  }
  return requests;
}

// Of log-probabilities, as long as tokens are the same.
void add_distances(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b,
                   std::vector<double>& all) {
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].token == b[i].token; ++i) {
    all.push_back(std::abs(double{a[i].logprob} - b[i].logprob));
  }
}

// Answers on a GPU, by these kernels of attention. Rounding swaps experts here and there: nine of
// ten positions are near.
void expect_near_the_cpus(const std::string& model, const std::vector<std::string>& kernels) {
  auto cpu = ModelUnderTest::load(options_of(model, DeviceChoice::kCpu, DType::kF32));
  ASSERT_TRUE(cpu.ok()) << cpu.status().message();
  const auto expected = cpu->answer(requests()).value();
  for (const auto& [dtype, distance_max] : {std::pair(DType::kBF16, 0.2), {DType::kF16, 0.05}}) {
    SCOPED_TRACE(model + " " + std::string(dtype_name(dtype)));
    std::mutex mutex;
    std::set<std::string, std::less<>> chosen;
    const OpHooks hooks{.chosen = [&](std::string_view kernel) {
      const std::lock_guard lock(mutex);
      chosen.emplace(kernel);
    }};
    StackOptions options = options_of(model, DeviceChoice::kGpu, dtype);
    options.runner.poison_workspace = true;
    options.runner.hooks = &hooks;
    auto gpu = ModelUnderTest::load(options);
    ASSERT_TRUE(gpu.ok()) << gpu.status().message();
    const auto answers = gpu->answer(requests()).value();
    std::vector<double> distances;
    for (size_t i = 0; i < answers.size(); ++i) {
      EXPECT_EQ(answers[i].finish, FinishReason::kLength) << i;
      add_distances(expected[i].prompt_logprobs, answers[i].prompt_logprobs, distances);
      add_distances(expected[i].logprobs, answers[i].logprobs, distances);
    }
    ASSERT_GT(distances.size(), 300u);
    std::ranges::sort(distances);
    EXPECT_LE(distances[distances.size() * 9 / 10], distance_max);
    for (const std::string& kernel : kernels) EXPECT_TRUE(chosen.contains(kernel)) << kernel;
    EXPECT_FALSE(chosen.contains("attention/cuda/reference"));
  }
}

TEST(HeadSizesCuda, OfTwoSizesAreNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string& model : gemmas()) {
    expect_near_the_cpus(model, {"attention/cuda/d256", "attention/cuda/d512"});
  }
}

TEST(HeadSizesCuda, WithAlibiAreNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_near_the_cpus(bloom(), {"attention/cuda/alibi_d128"});
  expect_near_the_cpus(mpt(), {"attention/cuda/alibi_d64"});
}

TEST(HeadSizesCuda, WithNarrowValuesAreNearTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  expect_near_the_cpus(mimo2(), {"attention/cuda/d192_128"});
}

// Together, alone, in chunks, with proposals and from recordings, while what nothing may read of
// the cache is NaN.
TEST(HeadSizesCuda, RowsAreBitEqualHoweverTheyCome) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string& model : {bloom(), mpt(), mimo2()}) {
    SCOPED_TRACE(model);
    StackOptions options = options_of(model, DeviceChoice::kGpu, DType::kBF16);
    options.device.batch_invariant = true;
    const auto all = requests();
    auto together = ModelUnderTest::load(options);
    ASSERT_TRUE(together.ok()) << together.status().message();
    const auto expected = together->answer(all).value();
    const auto expect_equal = [&](const char* how, const Outcome& outcome, size_t i) {
      EXPECT_EQ(outcome.tokens, expected[i].tokens) << how << i;
      std::vector<double> distances;
      add_distances(expected[i].logprobs, outcome.logprobs, distances);
      EXPECT_EQ(*std::ranges::max_element(distances), 0.0) << how << i;
    };
    for (size_t i = 0; i < all.size(); ++i) {
      expect_equal("alone ", together->answer(all[i]).value(), i);
    }
    const auto expect_equal_with = [&](const char* how, const auto& change) {
      StackOptions changed = options;
      changed.runner.poison_kv = true;
      change(changed);
      auto other = ModelUnderTest::load(changed);
      ASSERT_TRUE(other.ok()) << how << other.status().message();
      const auto outcomes = other->answer(all).value();
      for (size_t i = 0; i < all.size(); ++i) expect_equal(how, outcomes[i], i);
    };
    expect_equal_with("chunks ", [](StackOptions& o) { o.batch.max_num_batched_tokens = 19; });
    expect_equal_with("eager ",
                      [](StackOptions& o) { o.runner.graphs = o.runner.graphs_at_start = false; });
    expect_equal_with("proposals ", [](StackOptions& o) {
      o.engine.scheduler.proposals = {
          .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
    });
  }
}

}  // namespace
}  // namespace headrace::head_sizes_cuda_test
