// Adapters on the GPU in the whole engine: the answers of the CPU, the bits of each request alone,
// and adapters that come and go while requests run.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <cmath>
#include <iterator>
#include <string>
#include <thread>

#include "../golden/model_under_test.h"
#include "base/rng.h"
#include "tensor/allocation_count.h"
#include "tensor/device.h"

namespace headrace::adapters_cuda_test {
namespace {

constexpr const char* kTinyModels = "tests/data/models/";
constexpr const char* kTinyAdapters = "tests/data/adapters/";
constexpr int32_t kTinyVocab = 96;
constexpr int32_t kTinyContext = 120;
constexpr int32_t kTinyAnswer = 20;

// A PEFT folder where there is one for the model, twice, of which one is scaled; and random ones.
StackOptions adapted_options(const std::string& name, DeviceChoice device,
                             std::optional<DType> dtype) {
  StackOptions options{.model = kTinyModels + name,
                       .device = {.choice = device, .threads = 2},
                       .load = {.dtype = dtype},
                       .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
                       .memory = {.max_model_len = kTinyContext, .kv_cache_memory_bytes = 64 << 20},
                       .runner = {.graphs_at_start = true}};
  options.adapters.dummies = 2;
  options.adapters.dummy_rank = 20;
  const bool has_peft =
      name == "qwen2" || name == "phi3" || name == "gemma2" || name == "llama-biases";
  if (!has_peft) return options;
  options.adapters.at_start = {{.name = "peft", .path = kTinyAdapters + name},
                               {.name = "scaled", .path = kTinyAdapters + name, .scale = -0.5}};
  return options;
}

// Request i of each prompt and sampling has adapter i modulo their number and one, the last none.
std::vector<TestRequest> adapted_requests(ModelUnderTest& model, size_t count,
                                          int32_t prompt_logprobs) {
  const auto adapters = model.stack().adapters()->list();
  std::vector<TestRequest> requests;
  Rng rng(31);
  for (size_t i = 0; i < count; ++i) {
    TestRequest& request = requests.emplace_back();
    const auto length = static_cast<int32_t>(rng.between(1, kTinyContext - kTinyAnswer - 1));
    for (int32_t t = 0; t < length; ++t) {
      request.prompt.push_back(static_cast<TokenId>(rng.below(kTinyVocab)));
    }
    request.sampling = {.temperature = i % 3 == 2 ? 0.9f : 0.0f,
                        .seed = i,
                        .max_tokens = kTinyAnswer,
                        .ignore_eos = true};
    request.sampling.logprobs = 2;
    request.sampling.prompt_logprobs = prompt_logprobs;
    const size_t which = i % (adapters.size() + 1);
    if (which < adapters.size()) request.adapter = adapters[which].adapter;
  }
  return requests;
}

// Distances of log-probabilities of the same tokens, until texts go apart.
struct Distances {
  double largest = 0, sum = 0;
  int count = 0;

  void add(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b) {
    for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].token == b[i].token; ++i) {
      const double distance = std::abs(double{a[i].logprob} - b[i].logprob);
      largest = std::max(largest, distance);
      sum += distance;
      ++count;
    }
  }
  double mean() const { return sum / count; }
};

bool equal_outcomes(const Outcome& a, const Outcome& b) {
  const auto equal = [](const std::vector<TokenLogprobs>& x, const std::vector<TokenLogprobs>& y) {
    return std::ranges::equal(x, y, [](const TokenLogprobs& left, const TokenLogprobs& right) {
      return left.token == right.token && left.logprob == right.logprob && left.top == right.top;
    });
  };
  return a.tokens == b.tokens && equal(a.logprobs, b.logprobs) &&
         equal(a.prompt_logprobs, b.prompt_logprobs);
}

// What the CPU answers is what merged weights and Hugging Face PEFT do (models/lora_adapter_test).
TEST(TinyCudaAdapters, AnswersAreTheCpus) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string name : {"llama", "llama-biases", "llama3-gguf.gguf", "qwen2", "phi3",
                                 "gemma2", "qwen3-moe", "olmo2", "starcoder2", "lfm2"}) {
    // A token that a sharp adapter makes unlikely is far off in BF16: its mean tells.
    struct Bound {
      DType dtype;
      double largest, mean;
    };
    for (const auto& [dtype, largest, mean] :
         {Bound{DType::kF32, 3e-3, 3e-4}, {DType::kBF16, 4.0, 0.1}, {DType::kF16, 0.2, 0.0125}}) {
      SCOPED_TRACE(name + " " + std::string(dtype_name(dtype)));
      // In 16 bits rounding swaps experts.
      if (name == "qwen3-moe" && dtype != DType::kF32) continue;
      auto cpu = ModelUnderTest::load(adapted_options(name, DeviceChoice::kCpu, DType::kF32));
      auto gpu = ModelUnderTest::load(adapted_options(name, DeviceChoice::kGpu, dtype));
      ASSERT_TRUE(cpu.ok()) << cpu.status().message();
      ASSERT_TRUE(gpu.ok()) << gpu.status().message();
      const auto expected = cpu->answer(adapted_requests(*cpu, 10, 2));
      const auto actual = gpu->answer(adapted_requests(*gpu, 10, 2));
      ASSERT_TRUE(expected.ok() && actual.ok());
      Distances distances;
      for (size_t i = 0; i < expected->size(); ++i) {
        const Outcome &want = (*expected)[i], &got = (*actual)[i];
        ASSERT_EQ(want.prompt_logprobs.size(), got.prompt_logprobs.size()) << i;
        distances.add(want.prompt_logprobs, got.prompt_logprobs);
        distances.add(want.logprobs, got.logprobs);
      }
      EXPECT_LE(distances.largest, largest);
      EXPECT_LE(distances.mean(), mean);
      // An adapter matters: without it the answer is another.
      std::vector<TestRequest> plain = adapted_requests(*gpu, 10, 2);
      for (TestRequest& request : plain) request.adapter = nullptr;
      const auto without = gpu->answer(plain);
      ASSERT_TRUE(without.ok());
      EXPECT_FALSE(equal_outcomes((*without)[0], (*actual)[0]));
    }
  }
}

// Alone, together, in small steps with preemption, with proposals; recorded and eagerly.
TEST(TinyCudaAdapters, WithBatchInvarianceAnswersAreThoseOfEachAloneToTheBit) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  for (const std::string name : {"llama", "qwen2", "gemma2", "llama3-gguf.gguf"}) {
    SCOPED_TRACE(name);
    StackOptions options = adapted_options(name, DeviceChoice::kGpu, std::nullopt);
    options.device.batch_invariant = true;
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    std::vector<Outcome> alone;
    for (const TestRequest& request : adapted_requests(*model, 12, 2)) {
      alone.push_back(model->answer(request).value());
    }
    const auto expect_all = [&](ModelUnderTest& same, const std::string& where) {
      const auto answers = same.answer(adapted_requests(same, 12, 2));
      ASSERT_TRUE(answers.ok()) << answers.status().message();
      for (size_t i = 0; i < alone.size(); ++i) {
        EXPECT_TRUE(equal_outcomes((*answers)[i], alone[i])) << where << ", request " << i;
      }
    };
    expect_all(*model, "together");
    expect_all(*model, "with prefixes that are cached");
    // Rows that are kept in the last layer.
    const auto unread = model->answer(adapted_requests(*model, 12, -1));
    ASSERT_TRUE(unread.ok());
    for (size_t i = 0; i < alone.size(); ++i) EXPECT_EQ((*unread)[i].tokens, alone[i].tokens) << i;

    const StackInfo& info = model->stack().info();
    options.batch.max_num_batched_tokens = 16;
    options.memory.kv_cache_memory_bytes = 24 * info.kv_bytes / info.block_count;
    options.engine.scheduler.admission_headroom = 0;
    auto narrow = ModelUnderTest::load(options);
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    expect_all(*narrow, "in steps of 16");
    options.engine.scheduler.proposals = {
        .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
    options.runner.graphs = options.runner.graphs_at_start = false;
    auto proposing = ModelUnderTest::load(options);
    ASSERT_TRUE(proposing.ok()) << proposing.status().message();
    expect_all(*proposing, "with proposals, eagerly");
    EXPECT_GT(proposing->stack().engine().stats().scheduler.proposals.proposed, 0u);
  }
}

TEST(TinyCudaAdapters, NothingIsAllocatedOnceReady) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  auto model = ModelUnderTest::load(adapted_options("qwen2", DeviceChoice::kGpu, std::nullopt));
  ASSERT_TRUE(model.ok()) << model.status().message();
  const int64_t allocations = allocation_count();
  ASSERT_TRUE(model->answer(adapted_requests(*model, 16, 2)).ok());
  EXPECT_EQ(allocation_count(), allocations);
}

// Slots are filled anew beside steps; who runs keeps its own. What is loaded later lies in memory
// that was planned.
TEST(TinyCudaAdapters, AdaptersComeAndGoWhileRequestsRun) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  constexpr int kScales = 3;
  StackOptions options = adapted_options("qwen2", DeviceChoice::kGpu, std::nullopt);
  options.device.batch_invariant = true;
  options.adapters.dummies = 0;
  options.adapters.at_start.clear();
  options.adapters.enabled = true;
  options.adapters.count_max = 4;
  options.adapters.rank_max = 8;
  auto model = ModelUnderTest::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  AdapterBank& bank = *model->stack().adapters();
  const auto spec_of = [](int number) {
    return AdapterSpec{.name = std::to_string(number),
                       .path = std::string(kTinyAdapters) + "qwen2",
                       .scale = 1.0 + number % kScales};
  };
  const std::vector<TestRequest> base = adapted_requests(*model, 6, -1);
  std::vector<std::vector<Outcome>> expected;  // [scales]
  for (int scale = 0; scale < kScales; ++scale) {
    ASSERT_TRUE(bank.load(spec_of(scale)).ok());
    std::vector<TestRequest> requests = base;
    for (TestRequest& request : requests) request.adapter = bank.find(std::to_string(scale));
    expected.push_back(model->answer(requests).value());
    requests.clear();
    ASSERT_TRUE(bank.unload(std::to_string(scale)).ok());
  }
  EXPECT_FALSE(equal_outcomes(expected[0][0], expected[1][0]));

  const int64_t allocations = allocation_count();
  std::atomic<int> number = kScales;
  std::vector<std::thread> lanes;
  for (int lane = 0; lane < 3; ++lane) {
    lanes.emplace_back([&] {
      for (int turn = 0; turn < 15; ++turn) {
        const int own = number++;
        const AdapterSpec spec = spec_of(own);
        Status loaded = bank.load(spec);
        for (int wait = 0; wait < 2000 && !loaded.ok(); ++wait) {  // others' requests end
          std::this_thread::sleep_for(std::chrono::milliseconds(1));
          loaded = bank.load(spec);
        }
        ASSERT_TRUE(loaded.ok()) << loaded.message();
        std::vector<TestRequest> requests = base;
        for (TestRequest& request : requests) request.adapter = bank.find(spec.name);
        ASSERT_TRUE(bank.unload(spec.name).ok());
        const auto answers = model->answer(requests);
        ASSERT_TRUE(answers.ok()) << answers.status().message();
        for (size_t i = 0; i < base.size(); ++i) {
          EXPECT_TRUE(
              equal_outcomes((*answers)[i], expected[static_cast<size_t>(own % kScales)][i]))
              << "adapter " << own << ", request " << i;
        }
      }
    });
  }
  for (std::thread& lane : lanes) lane.join();
  EXPECT_EQ(allocation_count(), allocations);
}

TEST(TinyCudaAdapters, WhatAGpuRefusesNamesTheFlag) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  StackOptions options = adapted_options("qwen2", DeviceChoice::kGpu, std::nullopt);
  options.adapters.dtype = DType::kF32;
  EXPECT_EQ(ModelUnderTest::load(options).status().field(), "lora-dtype");
  options.adapters.dtype.reset();
  options.adapters.rank_max = 2;
  EXPECT_NE(ModelUnderTest::load(options).status().message().find("--max-lora-rank"),
            std::string::npos);
  options = adapted_options("qwen2", DeviceChoice::kGpu, std::nullopt);
  options.adapters.enabled = true;
  options.adapters.count_max = 1 << 16;
  options.adapters.rank_max = 1 << 12;
  const Status status = ModelUnderTest::load(options).status();
  EXPECT_EQ(status.code(), StatusCode::kExhausted) << status.message();
  EXPECT_NE(status.message().find("--max-cpu-loras"), std::string::npos) << status.message();
}

}  // namespace
}  // namespace headrace::adapters_cuda_test
