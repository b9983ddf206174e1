// Tiny random models of every architecture in the whole engine: what a request gets back depends on
// the request alone, and layers whose window has passed a block give it back.
#include <gtest/gtest.h>

#include <algorithm>
#include <atomic>
#include <bit>
#include <condition_variable>
#include <filesystem>
#include <mutex>
#include <optional>
#include <string>

#include <fmt/format.h>

#include "../golden/equal_bits.h"
#include "../golden/model_under_test.h"
#include "base/rng.h"

namespace headrace::tiny_engine_test {
namespace {

namespace fs = std::filesystem;

constexpr const char* kFolder = "tests/data/models";
constexpr int32_t kVocab = 96;    // of all of them
constexpr int32_t kLength = 200;  // tokens of the longest text; the windows are 12
constexpr int32_t kBlockTokens = 16;

// Folders and GGUF files.
std::vector<std::string> model_paths() {
  std::vector<std::string> paths;
  for (const auto& entry : fs::directory_iterator(kFolder)) {
    if (entry.is_directory() || entry.path().extension() == ".gguf") {
      paths.push_back(entry.path().string());
    }
  }
  std::sort(paths.begin(), paths.end());
  return paths;
}

// Every option that a test does not set is the same for all, so that only these can matter.
StackOptions stack_options(const std::string& path) {
  return {.model = path,
          .device = {.choice = DeviceChoice::kCpu, .threads = 2},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 512}};
}

int32_t model_len(const std::string& path) {
  return path.find("dynamic") == std::string::npos ? kLength : 64;  // twice its context
}

std::vector<TokenId> random_prompt(Rng& rng, int32_t length) {
  std::vector<TokenId> prompt;
  for (int32_t i = 0; i < length; ++i) prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
  return prompt;
}

// Greedy and sampled ones, of one to nearly all tokens that a model takes.
std::vector<TestRequest> requests(int32_t length_max) {
  constexpr int32_t kNewTokens = 8;
  std::vector<TestRequest> requests;
  Rng rng(11);
  for (const int32_t percent : {0, 3, 20, 45, 70, 100}) {
    const int32_t length = 1 + (length_max - kNewTokens - 1) * percent / 100;
    SamplingParams sampling{.temperature = 0, .max_tokens = kNewTokens, .ignore_eos = true};
    sampling.logprobs = 3;
    sampling.prompt_logprobs = 3;
    if (requests.size() % 2 == 1) {
      sampling.temperature = 0.8f;
      sampling.seed = requests.size();
    }
    requests.push_back({.prompt = random_prompt(rng, length), .sampling = sampling});
  }
  return requests;
}

bool same_bits(const std::vector<TokenLogprobs>& a, const std::vector<TokenLogprobs>& b) {
  return std::equal(a.begin(), a.end(), b.begin(), b.end(), [](const auto& x, const auto& y) {
    return x.token == y.token &&
           std::bit_cast<uint32_t>(x.logprob) == std::bit_cast<uint32_t>(y.logprob) &&
           x.top == y.top;
  });
}

void expect_same(const Outcome& a, const Outcome& b, const std::string& where) {
  EXPECT_EQ(a.tokens, b.tokens) << where;
  EXPECT_TRUE(same_bits(a.logprobs, b.logprobs)) << where;
  EXPECT_TRUE(same_bits(a.prompt_logprobs, b.prompt_logprobs)) << where << ", prompt";
}

// Alone; together; together in steps of 16 tokens, with so small a pool that some wait or are
// computed twice; the same with proposals. In the small pool what nothing may read is NaN: pages
// that are given to another sequence, rows behind a sequence's end, tokens that were rejected.
class TinyEngineBits : public ::testing::TestWithParam<EqualBits> {};

TEST_P(TinyEngineBits, AnswersDoNotDependOnTheBatchTheStepsOrThePool) {
  std::optional<CpuWithoutAmx> without_amx;
  if (!GetParam().may_use_amx) without_amx.emplace();
  ASSERT_GE(model_paths().size(), 33u);
  uint64_t proposed = 0, accepted = 0;  // of all models
  for (const std::string& path : model_paths()) {
    SCOPED_TRACE(path);
    StackOptions options = stack_options(path);
    options.device.batch_invariant = GetParam().batch_invariant;
    options.memory.max_model_len = model_len(path);
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    const std::vector<TestRequest> all = requests(options.memory.max_model_len);
    std::vector<Outcome> alone;
    for (const TestRequest& request : all) alone.push_back(model->answer(request).value());
    const auto together = model->answer(all);
    ASSERT_TRUE(together.ok());

    const StackInfo& info = model->stack().info();
    const int64_t page_bytes = info.kv_bytes / info.block_count;
    const int64_t groups =
        std::max<int64_t>(2, std::ssize(model->stack().engine().options().scheduler.groups));
    const int64_t pages = groups * (options.memory.max_model_len / kBlockTokens + 3);
    options.batch.max_num_batched_tokens = 16;
    options.memory.kv_cache_memory_bytes = pages * page_bytes;
    options.runner.poison_kv = true;
    auto narrow = ModelUnderTest::load(options);
    ASSERT_TRUE(narrow.ok()) << narrow.status().message();
    const auto in_steps = narrow->answer(all);
    ASSERT_TRUE(in_steps.ok()) << in_steps.status().message();
    options.engine.scheduler.proposals = {
        .method = ProposalMethod::kNgram, .tokens_max = 4, .lookup_min = 1};
    auto proposing = ModelUnderTest::load(options);
    ASSERT_TRUE(proposing.ok()) << proposing.status().message();
    const auto verified = proposing->answer(all);
    ASSERT_TRUE(verified.ok()) << verified.status().message();
    const SchedulerStats stats = proposing->stack().engine().stats().scheduler;
    proposed += stats.proposals.proposed;
    accepted += stats.proposals.accepted;
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same((*together)[i], alone[i], "together, request " + std::to_string(i));
      expect_same((*verified)[i], alone[i], "with proposals, request " + std::to_string(i));
      expect_same((*in_steps)[i], alone[i], "in steps of 16, request " + std::to_string(i));
    }

    // Whose prompt is not scored computes one row of it in the last layer.
    std::vector<TestRequest> unscored = all;
    for (TestRequest& request : unscored) request.sampling.prompt_logprobs = -1;
    for (ModelUnderTest* each : {&*model, &*narrow}) {
      const auto unread = each->answer(unscored);
      ASSERT_TRUE(unread.ok()) << unread.status().message();
      for (size_t i = 0; i < all.size(); ++i) {
        EXPECT_EQ((*unread)[i].tokens, alone[i].tokens) << i;
        EXPECT_TRUE(same_bits((*unread)[i].logprobs, alone[i].logprobs)) << i;
      }
    }
  }
  EXPECT_GT(accepted, 30u);
  EXPECT_GT(proposed, accepted + 30);  // what was rejected is poison
}

INSTANTIATE_TEST_SUITE_P(EqualBits, TinyEngineBits, ::testing::ValuesIn(kEqualBits),
                         [](const auto& info) { return std::string(info.param.name); });

// Latents, states and experts over ranks, in little memory that is full of NaN.
TEST(TinyEngine, RanksAnswerAsOne) {
  for (const char* name :
       {"glm4-moe-lite", "qwen2-moe", "qwen35-moe", "axk2", "qwen4-exp", "inkling", "apertus15"}) {
    SCOPED_TRACE(name);
    StackOptions options = stack_options(std::string(kFolder) + "/" + name);
    options.device.batch_invariant = true;
    options.memory.max_model_len = kLength;
    auto whole = ModelUnderTest::load(options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    const std::vector<TestRequest> all = requests(kLength);
    const std::vector<Outcome> expected = whole->answer(all).value();
    const StackInfo& info = whole->stack().info();
    const int64_t page_bytes = info.kv_bytes / info.block_count;
    options.batch.max_num_batched_tokens = 48;
    options.runner.poison_kv = true;
    options.device.threads = 3;
    for (const int32_t ranks : {2, 3}) {
      for (const bool whole_experts : {false, true}) {
        // Of all ranks, each of which may keep as much as one alone.
        options.memory.kv_cache_memory_bytes = ranks * (kLength / kBlockTokens + 3) * page_bytes;
        options.device.tensor_parallel_size = ranks;
        options.device.enable_expert_parallel = whole_experts;
        auto split = ModelUnderTest::load(options);
        ASSERT_TRUE(split.ok()) << split.status().message();
        const auto answers = split->answer(all);
        ASSERT_TRUE(answers.ok()) << answers.status().message();
        for (size_t i = 0; i < all.size(); ++i) {
          expect_same((*answers)[i], expected[i], fmt::format("{} ranks, request {}", ranks, i));
        }
      }
    }
  }
}

// The same of layers over stages, with as many steps in flight; refused where a stage would keep
// nothing.
TEST(TinyEngine, StagesAnswerAsOne) {
  int32_t staged = 0;
  for (const std::string& path : model_paths()) {
    SCOPED_TRACE(path);
    StackOptions options = stack_options(path);
    options.device.batch_invariant = true;
    options.memory.max_model_len = model_len(path);
    auto whole = ModelUnderTest::load(options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    const std::vector<TestRequest> all = requests(options.memory.max_model_len);
    const StackInfo& info = whole->stack().info();
    const int64_t page_bytes = info.kv_bytes / info.block_count;
    options.memory.kv_cache_memory_bytes =
        8 * (options.memory.max_model_len / kBlockTokens + 3) * page_bytes;
    options.batch.max_num_batched_tokens = 48;
    options.runner.poison_kv = true;
    options.device.pipeline_parallel_size = 2;
    auto split = ModelUnderTest::load(options);
    if (!split.ok()) {
      const std::string why(split.status().message());
      const bool is_known = why.find("would have none that keeps") != std::string::npos ||
                            why.find("leave rows to later ones") != std::string::npos;
      EXPECT_TRUE(is_known) << why;
      continue;
    }
    ++staged;
    const std::vector<Outcome> expected = whole->answer(all).value();
    const auto answers = split->answer(all);
    ASSERT_TRUE(answers.ok()) << answers.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same((*answers)[i], expected[i], "request " + std::to_string(i));
    }
  }
  EXPECT_GE(staged, 95);
}

// In a pool in which sequences are preempted and come back, and over stages.
TEST(TinyEngine, PenaltiesLookAtTheLastTokensWhereverTheyWereComputed) {
  StackOptions options = stack_options(std::string(kFolder) + "/llama");
  options.device.batch_invariant = true;
  options.memory.max_model_len = kLength;
  std::vector<TestRequest> all;
  Rng rng(29);
  for (const int32_t window : {-1, 1, 2, 9, 40, 1 << 30}) {
    TestRequest& request = all.emplace_back(TestRequest{.prompt = random_prompt(rng, 20)});
    request.sampling = {.temperature = 0, .max_tokens = 100, .ignore_eos = true};
    request.sampling.repetition_penalty = 1.4f;
    request.sampling.frequency_penalty = 0.3f;
    request.sampling.penalty_window = window;
  }
  auto roomy = ModelUnderTest::load(options);
  ASSERT_TRUE(roomy.ok()) << roomy.status().message();
  std::vector<Outcome> alone;
  for (const TestRequest& request : all) alone.push_back(roomy->answer(request).value());
  const StackInfo& info = roomy->stack().info();
  options.memory.kv_cache_memory_bytes = 24 * info.kv_bytes / info.block_count;
  auto tight = ModelUnderTest::load(options);
  options.device.pipeline_parallel_size = 2;
  auto staged = ModelUnderTest::load(options);
  for (auto* model : {&tight, &staged}) {
    ASSERT_TRUE(model->ok()) << model->status().message();
    const auto answers = (*model)->answer(all);
    ASSERT_TRUE(answers.ok()) << answers.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      EXPECT_EQ((*answers)[i].tokens, alone[i].tokens) << "request " << i;
    }
    EXPECT_GT((*model)->stack().engine().stats().scheduler.preemptions, 0u);
  }
}

// Found prefixes end anywhere in a run of tokens that share a key, and preempted sequences come
// back in the midst of one; proposals that were rejected have left keys behind.
TEST(TinyEngine, KeysThatTokensShareAreThoseOfTheTextAlone) {
  for (const char* name : {"deepseek4", "deepseek4-hub"}) {
    SCOPED_TRACE(name);
    StackOptions options = stack_options(std::string(kFolder) + "/" + name);
    options.device.batch_invariant = true;
    options.memory.max_model_len = kLength;
    Rng rng(7);
    const std::vector<TokenId> text = random_prompt(rng, 150);
    std::vector<TestRequest> all;
    for (const int32_t shared : {17, 37, 50, 64, 83, 101, 150}) {
      TestRequest& request = all.emplace_back();
      request.prompt.assign(text.begin(), text.begin() + shared);
      for (const TokenId token : random_prompt(rng, 9)) request.prompt.push_back(token);
      request.sampling = {.temperature = 0, .max_tokens = 40, .ignore_eos = true};
      request.sampling.logprobs = 3;
    }
    options.engine.scheduler.enable_prefix_caching = false;
    auto plain = ModelUnderTest::load(options);
    ASSERT_TRUE(plain.ok()) << plain.status().message();
    std::vector<Outcome> alone;
    for (const TestRequest& request : all) alone.push_back(plain->answer(request).value());
    const StackInfo& info = plain->stack().info();
    const int64_t groups = std::ssize(plain->stack().engine().options().scheduler.groups);
    options.engine.scheduler.enable_prefix_caching = true;
    options.engine.scheduler.proposals = {
        .method = ProposalMethod::kNgram, .tokens_max = 5, .lookup_min = 1};
    options.batch.max_num_batched_tokens = 24;
    options.runner.poison_kv = true;
    options.engine.scheduler.admission_headroom = 0;  // so that too many join
    options.memory.kv_cache_memory_bytes =
        groups * (kLength / kBlockTokens + 3) * (info.kv_bytes / info.block_count);
    auto found = ModelUnderTest::load(options);
    ASSERT_TRUE(found.ok()) << found.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same(found->answer(all[i]).value(), alone[i], fmt::format("request {}", i));
    }
    const auto together = found->answer(all);
    ASSERT_TRUE(together.ok()) << together.status().message();
    for (size_t i = 0; i < all.size(); ++i) {
      expect_same((*together)[i], alone[i], fmt::format("together, request {}", i));
    }
    const SchedulerStats stats = found->stack().engine().stats().scheduler;
    EXPECT_GT(stats.prefix_cache_hits, 5u);
    EXPECT_GT(stats.preemptions, 0u);
    EXPECT_GT(stats.proposals.proposed, stats.proposals.accepted);
  }
}

// The most blocks that were used at a time while one request ran.
class BlockWatch {
 public:
  // Prompt and 40 tokens more.
  static int32_t most_blocks(ModelUnderTest& model, std::vector<TokenId> prompt) {
    const auto watch = std::make_shared<BlockWatch>();
    Engine& engine = model.stack().engine();
    Request request{.id = engine.next_request_id(),
                    .prompt = std::move(prompt),
                    .sampling = {.temperature = 0, .max_tokens = 40, .ignore_eos = true}};
    const Status submitted = engine.submit(
        std::move(request), [watch, &engine](const Emission& e) { watch->see(engine, e); });
    CHECK(submitted.ok());
    return watch->wait();
  }

 private:
  void see(Engine& engine, const Emission& emission) {
    const std::lock_guard lock(mutex_);
    most_ = std::max(most_, engine.stats().scheduler.blocks_used);
    if (emission.finish == FinishReason::kNone) return;
    done_ = true;
    changed_.notify_all();
  }
  int32_t wait() {
    std::unique_lock lock(mutex_);
    changed_.wait(lock, [&] { return done_; });
    return most_;
  }

  std::mutex mutex_;
  std::condition_variable changed_;
  int32_t most_ = 0;
  bool done_ = false;
};

struct WindowCase {
  const char* model;
  bool full_layers;
  bool sliding_layers;
};

TEST(TinyEngine, BlocksBehindTheWindowAreFree) {
  constexpr int32_t kChunk = 16;
  constexpr int32_t kPrompt = kLength - 40;
  // Of a window of 12 and a chunk of 16: 28 tokens lie in three blocks at most.
  constexpr int32_t kSlidingBlocks = 3;
  constexpr int32_t kFullBlocks = (kLength + kBlockTokens - 1) / kBlockTokens;
  const WindowCase cases[] = {{"llama", true, false},       {"mistral", false, true},
                              {"starcoder2", false, true},  {"phi3", false, true},
                              {"qwen2-window", true, true}, {"gemma2", true, true},
                              {"gemma3", true, true},       {"gemma3-gguf.gguf", true, true}};
  for (const WindowCase& c : cases) {
    SCOPED_TRACE(c.model);
    StackOptions options = stack_options(std::string(kFolder) + "/" + c.model);
    options.memory.max_model_len = kLength;
    options.batch.max_num_batched_tokens = kChunk;
    options.engine.scheduler.enable_prefix_caching = false;
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    Rng rng(3);
    const int32_t most = BlockWatch::most_blocks(*model, random_prompt(rng, kPrompt));
    int32_t full = 0, sliding = 0;
    for (const KvGroupSpec& group : model->stack().engine().options().scheduler.groups) {
      ++(group.kind == KvKind::kFull ? full : sliding);
    }
    EXPECT_EQ(full > 0, c.full_layers);
    EXPECT_EQ(sliding > 0, c.sliding_layers);
    EXPECT_LE(most, full * kFullBlocks + sliding * kSlidingBlocks);
    EXPECT_GE(most, std::max(1, full * (kFullBlocks - 1)));  // the count is of the step before
  }
}

}  // namespace
}  // namespace headrace::tiny_engine_test
