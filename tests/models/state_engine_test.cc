// Models whose layers keep states of sequences, in the whole engine: prefixes are found where a
// state is saved, and answers have the bits that they have without.
#include <gtest/gtest.h>

#include <condition_variable>
#include <mutex>
#include <string>
#include <vector>

#include "../golden/model_under_test.h"
#include "base/rng.h"

namespace headrace::state_engine_test {
namespace {

constexpr int32_t kVocab = 96;
constexpr const char* kModels[] = {"lfm2",      "qwen35",  "qwen3-next",      "mamba2",
                                   "falcon-h1", "rwkv7",   "recurrent-gemma", "kimi-linear",
                                   "minimax",   "inkling", "qwen4-exp"};

StackOptions options_of(const char* model) {
  return {.model = std::string("tests/data/models/") + model,
          .device = {.choice = DeviceChoice::kCpu, .threads = 2, .batch_invariant = true},
          .batch = {.max_num_seqs = 8, .max_num_batched_tokens = 64},
          .memory = {.max_model_len = 240}};
}

std::vector<TokenId> random_tokens(Rng& rng, int32_t count) {
  std::vector<TokenId> tokens;
  for (int32_t i = 0; i < count; ++i) tokens.push_back(static_cast<TokenId>(rng.below(kVocab)));
  return tokens;
}

std::vector<TokenId> joined(std::vector<TokenId> first, const std::vector<TokenId>& second) {
  first.insert(first.end(), second.begin(), second.end());
  return first;
}

TestRequest greedy(std::vector<TokenId> prompt, int32_t tokens = 8) {
  SamplingParams sampling{.temperature = 0, .max_tokens = tokens, .ignore_eos = true};
  sampling.logprobs = 2;
  return {.prompt = std::move(prompt), .sampling = sampling};
}

// With prefixes and without; what is asked is asked of both.
class StateEngine {
 public:
  explicit StateEngine(StackOptions options) {
    with_.emplace(ModelUnderTest::load(options).value());
    options.engine.scheduler.enable_prefix_caching = false;
    without_.emplace(ModelUnderTest::load(options).value());
  }

  // The answer, and how many tokens of the prompt were found.
  struct Answer {
    std::vector<TokenId> tokens;
    int64_t found = 0;
  };
  Answer ask(const TestRequest& request) {
    const auto before = stats().prefix_cache_hits;
    const Outcome outcome = with_->answer(request).value();
    const Outcome expected = without_->answer(request).value();
    EXPECT_EQ(outcome.tokens, expected.tokens);
    EXPECT_EQ(outcome.logprobs.size(), expected.logprobs.size());
    for (size_t i = 0; i < outcome.logprobs.size(); ++i) {
      EXPECT_EQ(outcome.logprobs[i].logprob, expected.logprobs[i].logprob) << i;
    }
    return {outcome.tokens, static_cast<int64_t>(stats().prefix_cache_hits - before)};
  }
  SchedulerStats stats() { return with_->stack().engine().stats().scheduler; }
  ModelUnderTest& model() { return *with_; }

 private:
  std::optional<ModelUnderTest> with_, without_;
};

// 70 tokens and 40 of an answer, of which the last is not computed: six blocks are whole.
TEST(StateEngine, TheNextTurnOfAChatIsFound) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    StateEngine engine(options_of(name));
    Rng rng(1);
    std::vector<TokenId> chat = random_tokens(rng, 70);
    const auto first = engine.ask(greedy(chat, 40));
    EXPECT_EQ(first.found, 0);
    chat = joined(joined(chat, first.tokens), random_tokens(rng, 10));
    const auto second = engine.ask(greedy(chat, 40));
    EXPECT_EQ(second.found, 96);
    chat = joined(joined(chat, second.tokens), random_tokens(rng, 10));
    EXPECT_EQ(engine.ask(greedy(chat)).found, (70 + 40 + 10 + 39) / 16 * 16);
  }
}

// A prompt again, and one that goes on differently behind its last words: a state is saved before
// those.
TEST(StateEngine, APromptIsFoundAgain) {
  StateEngine engine(options_of("qwen35"));
  Rng rng(2);
  const std::vector<TokenId> prompt = random_tokens(rng, 100);
  EXPECT_EQ(engine.ask(greedy(prompt)).found, 0);
  EXPECT_EQ(engine.ask(greedy(prompt)).found, 80);
  std::vector<TokenId> other(prompt.begin(), prompt.end() - 6);
  EXPECT_EQ(engine.ask(greedy(joined(other, random_tokens(rng, 30)))).found, 80);
}

// The first that begins as another did saves a state where they part; the next finds it.
TEST(StateEngine, WhatPromptsShareIsFoundFromTheThirdOn) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    StateEngine engine(options_of(name));
    Rng rng(3);
    const std::vector<TokenId> shared = random_tokens(rng, 70);
    const auto ask = [&] { return engine.ask(greedy(joined(shared, random_tokens(rng, 50)))); };
    EXPECT_EQ(ask().found, 0);
    EXPECT_EQ(ask().found, 0);
    EXPECT_EQ(ask().found, 64);
    EXPECT_EQ(ask().found, 64);
  }
}

// With one checkpoint for all each takes it from the other; with none no prefix is found.
TEST(StateEngine, FewCheckpointsMeanFewFindsAndTheSameAnswers) {
  for (const int32_t checkpoints : {0, 1}) {
    StackOptions options = options_of("qwen35");
    options.memory.state_checkpoints = checkpoints;
    options.runner.poison_kv = true;
    StateEngine engine(options);
    Rng rng(4);
    const std::vector<TokenId> a = random_tokens(rng, 60), b = random_tokens(rng, 60);
    int64_t found = 0;
    for (int i = 0; i < 3; ++i) {
      for (const auto& prompt : {a, a, b}) found += engine.ask(greedy(prompt, 2)).found;
    }
    EXPECT_EQ(found, checkpoints == 0 ? 0 : 3 * 48);
    EXPECT_EQ(engine.stats().states.checkpoints, checkpoints);
  }
}

// Choices of one request begin with the state of its prompt: what each says is scored as a prompt.
TEST(StateEngine, ChoicesBeginWithTheStateOfThePrompt) {
  constexpr size_t kChoices = 3;
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    StateEngine engine(options_of(name));
    Engine& running = engine.model().stack().engine();
    Rng rng(5);
    const std::vector<TokenId> prompt = random_tokens(rng, 45);
    Request request{.id = running.next_request_id(), .prompt = prompt};
    request.sampling = {.temperature = 1, .max_tokens = 20, .ignore_eos = true};
    request.sampling.n = kChoices;
    request.sampling.seed = 7;
    request.sampling.logprobs = 0;
    std::mutex mutex;
    std::condition_variable changed;
    std::vector<std::vector<TokenLogprobs>> said(kChoices);
    size_t ended = 0;
    const Status submitted = running.submit(std::move(request), [&](const Emission& e) {
      const std::lock_guard lock(mutex);
      auto& own = said[static_cast<size_t>(e.choice)];
      own.insert(own.end(), e.logprobs.begin(), e.logprobs.end());
      ended += e.finish == FinishReason::kNone ? 0 : 1;
      changed.notify_all();
    });
    ASSERT_TRUE(submitted.ok()) << submitted.message();
    {
      std::unique_lock lock(mutex);
      changed.wait(lock, [&] { return ended == kChoices; });
    }
    for (const auto& choice : said) {
      ASSERT_EQ(choice.size(), 20u);
      std::vector<TokenId> tokens = prompt;
      for (const TokenLogprobs& each : choice) tokens.push_back(each.token);
      TestRequest scored = greedy(tokens, 1);
      scored.sampling.prompt_logprobs = 0;
      const Outcome outcome = engine.model().answer(scored).value();
      for (size_t i = 0; i < choice.size(); ++i) {
        EXPECT_EQ(outcome.prompt_logprobs[prompt.size() - 1 + i].logprob, choice[i].logprob) << i;
      }
    }
    EXPECT_NE(said[0][5].token * 9409 + said[0][6].token * 97 + said[0][7].token,
              said[1][5].token * 9409 + said[1][6].token * 97 + said[1][7].token);
  }
}

// Where keys and values of a sequence have its whole context, and no prefix is found. (Pages of
// tiny models are too small to be mapped.)
TEST(StateEngine, RunsWithContiguousMemory) {
  Rng rng(6);
  const std::vector<TokenId> prompt = random_tokens(rng, 100);
  const auto answer = [&](KvMemoryKind kind) {
    StackOptions options = options_of("lfm2");
    options.runner.kv_memory = kind;
    auto model = ModelUnderTest::load(options);
    EXPECT_TRUE(model.ok()) << model.status().message();
    const TestRequest request = greedy(prompt, 30);
    const auto first = model->answer(request)->tokens;
    EXPECT_EQ(model->answer(request)->tokens, first);
    return first;
  };
  const auto paged = answer(KvMemoryKind::kPaged);
  EXPECT_EQ(answer(KvMemoryKind::kContiguous), paged);
}

TEST(StateEngine, WhatDoesNotGoWithStatesIsRefusedByName) {
  const auto refusal = [](StackOptions options) {
    const auto model = ModelUnderTest::load(options);
    EXPECT_FALSE(model.ok());
    return model.ok() ? std::string() : std::string(model.status().message());
  };
  StackOptions options = options_of("lfm2");
  options.tiers.host_gib = 0.01;
  EXPECT_NE(refusal(options).find("--kv-offloading-size"), std::string::npos);
  options = options_of("lfm2");
  options.engine.kv_save_path = "/tmp/never";
  EXPECT_NE(refusal(options).find("--kv-save"), std::string::npos);
}

// Each rank keeps, saves and forks the states of its own heads and channels.
TEST(StateEngine, RanksAnswerAsOneAndFindPrefixes) {
  for (const char* name : kModels) {
    SCOPED_TRACE(name);
    StackOptions options = options_of(name);
    options.runner.poison_kv = true;
    auto whole = ModelUnderTest::load(options);
    ASSERT_TRUE(whole.ok()) << whole.status().message();
    options.device.tensor_parallel_size = 2;
    StateEngine ranks(options);
    Rng rng(7);
    const TestRequest request = greedy(random_tokens(rng, 100), 20);
    EXPECT_EQ(ranks.ask(request).found, 0);
    const auto again = ranks.ask(request);
    EXPECT_EQ(again.found, 80);
    EXPECT_EQ(again.tokens, whole->answer(request)->tokens);
  }
}

// Proposals are left out.
TEST(StateEngine, NothingIsProposed) {
  StackOptions options = options_of("lfm2");
  options.engine.scheduler.proposals = {.method = ProposalMethod::kNgram, .lookup_min = 1};
  auto model = ModelUnderTest::load(options);
  ASSERT_TRUE(model.ok()) << model.status().message();
  const std::vector<TokenId> again(60, 5);
  ASSERT_TRUE(model->answer(greedy(again, 30)).ok());
  EXPECT_EQ(model->stack().engine().stats().scheduler.proposals.proposed, 0u);
}

}  // namespace
}  // namespace headrace::state_engine_test
