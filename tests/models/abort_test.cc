// Requests cancelled at random moments of a real model on the CPU: the others get the tokens that
// they get alone, those cancelled a beginning of theirs, and every page comes back. The same on the
// fake device, many times more often: Scheduler.AbortEverywhere.
#include <gtest/gtest.h>

#include <algorithm>
#include <array>
#include <chrono>
#include <condition_variable>
#include <cstdio>
#include <cstdlib>
#include <memory>
#include <mutex>
#include <string>
#include <thread>
#include <utility>

#include "../golden/equal_bits.h"
#include "../golden/model_under_test.h"
#include "base/rng.h"
#include "tensor/device.h"

namespace headrace::abort_test {
namespace {

constexpr int32_t kVocab = 96;
constexpr size_t kTexts = 24;    // different requests
constexpr size_t kTogether = 6;  // requests of a trial, of which four run at a time
constexpr int kVictims = 2;      // of them, cancelled
constexpr int32_t kNewTokens = 14;

int64_t aborts_wanted() {
  const char* setting = std::getenv("HEADRACE_MODEL_ABORTS");
  return setting == nullptr ? 1000 : std::strtoll(setting, nullptr, 10);  // of each model
}

// Prompts of 1 to 60 tokens, some the beginning of others; greedy, sampled, two answers.
Request make_request(size_t text) {
  Rng rng(7 + text % 8);
  Request request;
  const auto length = static_cast<int32_t>(1 + mix64(text) % 60);
  for (int32_t i = 0; i < length; ++i) {
    request.prompt.push_back(static_cast<TokenId>(rng.below(kVocab)));
  }
  request.sampling = {.temperature = text % 2 == 0 ? 0.0f : 0.9f, .ignore_eos = true};
  request.sampling.max_tokens = 1 + static_cast<int32_t>(mix64(text + 100) % kNewTokens);
  request.sampling.n = text % 5 == 0 ? 2 : 1;
  request.sampling.seed = text;
  return request;
}

struct Answer {
  std::array<std::vector<TokenId>, 2> tokens;  // by choice
  std::array<FinishReason, 2> finish{};
};

// Who is cancelled when somebody has emitted so often.
struct Trigger {
  size_t watched = 0;
  int emissions = 0;
  size_t victim = 0;
};

// Requests submitted together, with their answers. The engine's sinks keep it.
class Trial : public std::enable_shared_from_this<Trial> {
 public:
  Trial(Engine& engine, std::vector<Trigger> triggers)
      : engine_(engine), triggers_(std::move(triggers)) {}

  // Once.
  void submit(std::vector<Request> requests) {
    answers_.resize(requests.size());
    emissions_.resize(requests.size());
    for (Request& request : requests) {
      request.id = engine_.next_request_id();
      ids_.push_back(request.id);
      left_ += request.sampling.n;
    }
    for (size_t i = 0; i < requests.size(); ++i) {
      const Status status =
          engine_.submit(std::move(requests[i]),
                         [self = shared_from_this(), i](const Emission& e) { self->take(i, e); });
      EXPECT_TRUE(status.ok()) << status.message();
    }
  }

  const std::vector<Answer>& wait() {
    std::unique_lock lock(mutex_);
    EXPECT_TRUE(done_.wait_for(lock, std::chrono::seconds(60), [&] { return left_ == 0; }));
    return answers_;
  }

 private:
  // On the engine's thread.
  void take(size_t request, const Emission& emission) {
    std::lock_guard lock(mutex_);
    const auto choice = static_cast<size_t>(emission.choice);
    auto& tokens = answers_[request].tokens[choice];
    tokens.insert(tokens.end(), emission.tokens.begin(), emission.tokens.end());
    answers_[request].finish[choice] = emission.finish;
    ++emissions_[request];
    for (const Trigger& trigger : triggers_) {
      if (trigger.watched == request && trigger.emissions == emissions_[request]) {
        engine_.cancel(ids_[trigger.victim]);
      }
    }
    if (emission.finish != FinishReason::kNone && --left_ == 0) done_.notify_all();
  }

  Engine& engine_;
  const std::vector<Trigger> triggers_;
  std::vector<RequestId> ids_;
  std::mutex mutex_;
  std::condition_variable done_;
  std::vector<Answer> answers_;
  std::vector<int> emissions_;
  int left_ = 0;
};

void expect_nothing_held(Engine& engine, const std::string& where) {
  SchedulerStats stats;
  for (int look = 0; look < 2000; ++look) {  // the last step is applied behind the last emission
    stats = engine.stats().scheduler;
    if (stats.running == 0 && stats.waiting == 0 && stats.blocks_used == 0) return;
    std::this_thread::sleep_for(std::chrono::milliseconds(1));
  }
  FAIL() << where << ": " << stats.running << " run, " << stats.waiting << " wait, "
         << stats.blocks_used << " pages are held";
}

struct Setting {
  const char* name;
  const char* model;
  int32_t tokens_max;  // of a step
  int32_t pages;       // of the pool; 0: enough for all
  bool prefix_cache;
};

// One trial: its requests, moments and victims from `seed`. Returns how many were cut off.
int64_t run_trial(Engine& engine, uint64_t seed, const std::vector<Answer>& alone) {
  Rng rng(seed);
  std::vector<size_t> texts;
  std::vector<Request> requests;
  for (size_t i = 0; i < kTogether; ++i) {
    texts.push_back(rng.below(kTexts));
    requests.push_back(make_request(texts.back()));
  }
  std::vector<Trigger> triggers;
  std::vector<bool> cancelled(kTogether, false);
  for (int i = 0; i < kVictims; ++i) {
    triggers.push_back({rng.below(kTogether), 1 + static_cast<int>(rng.below(kNewTokens + 1)),
                        rng.below(kTogether)});
    cancelled[triggers.back().victim] = true;
  }
  const auto trial = std::make_shared<Trial>(engine, triggers);
  trial->submit(std::move(requests));
  const std::vector<Answer>& answers = trial->wait();
  int64_t aborts = 0;
  for (size_t i = 0; i < kTogether; ++i) {
    for (size_t choice = 0; choice < 2; ++choice) {
      const std::vector<TokenId>& got = answers[i].tokens[choice];
      std::vector<TokenId> expected = alone[texts[i]].tokens[choice];
      if (answers[i].finish[choice] == FinishReason::kAbort) {
        EXPECT_TRUE(cancelled[i]) << "seed " << seed << ": request " << i << " was not cancelled";
        expected.resize(std::min(expected.size(), got.size()));
        ++aborts;
      }
      EXPECT_EQ(got, expected) << "seed " << seed << ", request " << i << ", choice " << choice;
    }
  }
  return aborts;
}

// Room for all; so little that some are preempted; sliding windows; without the cache.
constexpr Setting kSettings[] = {{"llama", "llama", 64, 0, true},
                                 {"llama, few pages", "llama", 24, 8, true},
                                 {"gemma3, few pages", "gemma3", 24, 19, true},
                                 {"qwen2, no cache", "qwen2", 16, 8, false}};

void abort_on(DeviceChoice device, bool batch_invariant, int64_t aborts_of_each) {
  for (const Setting& setting : kSettings) {
    SCOPED_TRACE(setting.name);
    StackOptions options{
        .model = std::string("tests/data/models/") + setting.model,
        .device = {.choice = device, .threads = 1, .batch_invariant = batch_invariant},
        .batch = {.max_num_seqs = 4, .max_num_batched_tokens = setting.tokens_max},
        .memory = {.max_model_len = 96}};
    options.engine.scheduler.enable_prefix_caching = setting.prefix_cache;
    auto model = ModelUnderTest::load(options);
    ASSERT_TRUE(model.ok()) << model.status().message();
    if (setting.pages > 0) {
      const StackInfo& info = model->stack().info();
      const int32_t pages = setting.pages + (info.on_gpu ? 1 : 0);  // one is for rows of padding
      options.memory.kv_cache_memory_bytes = pages * (info.kv_bytes / info.block_count);
      model = ModelUnderTest::load(options);
      ASSERT_TRUE(model.ok()) << model.status().message();
    }
    Engine& engine = model->stack().engine();
    std::vector<Answer> alone;
    for (size_t text = 0; text < kTexts; ++text) {
      const auto trial = std::make_shared<Trial>(engine, std::vector<Trigger>{});
      trial->submit({make_request(text)});
      alone.push_back(trial->wait()[0]);
    }
    int64_t aborts = 0;
    uint64_t seed = 0;
    while (aborts < aborts_of_each && !::testing::Test::HasFailure()) {
      aborts += run_trial(engine, ++seed, alone);
      expect_nothing_held(engine, "seed " + std::to_string(seed));
    }
    const SchedulerStats stats = engine.stats().scheduler;
    std::printf("%s: %ld aborts in %lu trials, %lu preemptions\n", setting.name, aborts, seed,
                stats.preemptions);
    if (setting.pages > 0) {
      EXPECT_GT(stats.preemptions, 0u);
    }
    if (::testing::Test::HasFailure()) return;
  }
}

TEST(AbortEverywhere, OnModelsOnTheCpu) { abort_on(DeviceChoice::kCpu, true, aborts_wanted()); }

// Without AMX the flag changes nothing: a row has the same bits in every batch.
TEST(AbortEverywhere, WithoutBatchInvariantOnTheCpu) {
  const CpuWithoutAmx without_amx;
  abort_on(DeviceChoice::kCpu, false, aborts_wanted() / 4);
}

// Which neighbours a row has must not matter to a row's bits.
TEST(AbortEverywhere, BatchInvariantOnAGpu) {
  if (!cuda_device_present()) GTEST_SKIP() << "not run: there is no GPU";
  abort_on(DeviceChoice::kGpu, true, aborts_wanted());
}

}  // namespace
}  // namespace headrace::abort_test
