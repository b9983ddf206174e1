// The engine on the oracle device: any mix-up of requests, steps or blocks is a wrong token.
#include "engine/engine.h"

#include <gtest/gtest.h>

#include <array>
#include <condition_variable>
#include <future>
#include <mutex>
#include <numeric>
#include <thread>
#include <utility>

#include "base/rng.h"
#include "engine/oracle_runner_fixture.h"

namespace headrace::engine_test {
namespace {

using namespace std::chrono_literals;

const OracleModel kModel{.vocab_size = 1000, .end_id = 0, .end_probability = 0.02};

SchedulerOptions small_scheduler() {
  SchedulerOptions options;
  options.max_num_seqs = 8;
  options.max_num_batched_tokens = 64;
  options.max_model_len = 256;
  options.max_queued_requests = 16;
  options.groups = {{.layers = {0}, .block_tokens = 16, .block_bytes = 1}};
  options.block_count = 64;
  options.end_ids = {kModel.end_id};
  return options;
}

struct Fixture {
  explicit Fixture(SchedulerOptions scheduler = small_scheduler(), double watchdog_seconds = 10) {
    EngineOptions options{.scheduler = scheduler,
                          .vocab_size = kModel.vocab_size,
                          .watchdog_seconds = watchdog_seconds};
    engine = Engine::create(options, std::make_unique<OracleRunner>(kModel, scheduler, controls))
                 .value();
  }
  std::shared_ptr<OracleControls> controls = std::make_shared<OracleControls>();
  std::unique_ptr<Engine> engine;
};

// Collects what one request emits.
class Collector {
 public:
  explicit Collector(int32_t n)
      : tokens_(static_cast<size_t>(n)), finish_(static_cast<size_t>(n)) {}
  EmissionSink sink() {
    return [this](const Emission& emission) {
      std::lock_guard lock(mutex_);
      const auto choice = static_cast<size_t>(emission.choice);
      EXPECT_EQ(finish_[choice], FinishReason::kNone) << "an emission after the finish";
      if (emission.admitted) {
        EXPECT_FALSE(std::exchange(admitted_, true)) << "it left the queue twice";
        EXPECT_TRUE(emission.tokens.empty() && emission.finish == FinishReason::kNone);
      }
      EXPECT_TRUE(admitted_ || emission.tokens.empty()) << "tokens from the queue";
      tokens_[choice].insert(tokens_[choice].end(), emission.tokens.begin(), emission.tokens.end());
      finish_[choice] = emission.finish;
      done_ += emission.finish != FinishReason::kNone;
      changed_.notify_all();
    };
  }
  bool wait_all(std::chrono::seconds limit = 20s) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, limit, [&] { return done_ == tokens_.size(); });
  }
  bool wait_tokens(size_t count) {
    std::unique_lock lock(mutex_);
    return changed_.wait_for(lock, 20s, [&] { return tokens_[0].size() >= count; });
  }
  std::vector<TokenId> tokens(size_t choice) {
    std::lock_guard lock(mutex_);
    return tokens_[choice];
  }
  FinishReason finish(size_t choice) {
    std::lock_guard lock(mutex_);
    return finish_[choice];
  }

 private:
  std::mutex mutex_;
  std::condition_variable changed_;
  std::vector<std::vector<TokenId>> tokens_;
  std::vector<FinishReason> finish_;
  size_t done_ = 0;
  bool admitted_ = false;
};

Request make_request(Engine& engine, uint64_t seed, int32_t prompt, int32_t max_tokens,
                     int32_t n = 1) {
  Request request{.id = engine.next_request_id()};
  Rng rng(seed);
  for (int32_t i = 0; i < prompt; ++i)
    request.prompt.push_back(static_cast<TokenId>(rng.below(1000)));
  request.sampling.max_tokens = max_tokens;
  request.sampling.n = n;
  request.sampling.seed = seed;
  return request;
}

std::vector<TokenId> expected_tokens(const Request& request, int32_t choice) {
  std::vector<TokenId> all = request.prompt;
  std::vector<TokenId> output;
  while (static_cast<int32_t>(output.size()) < request.sampling.max_tokens) {
    output.push_back(oracle_next_token(kModel, request, choice, all));
    all.push_back(output.back());
    if (output.back() == kModel.end_id) break;
  }
  return output;
}

void wait_idle(Engine& engine) {
  for (int i = 0; i < 2000 && engine.stats().scheduler.blocks_used > 0; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(engine.stats().scheduler.blocks_used, 0);
}

TEST(Engine, ManyThreadsEachGetTheirOwnTokens) {
  for (int32_t depth : {1, 2}) {
    SchedulerOptions scheduler = small_scheduler();
    scheduler.steps_in_flight_max = depth;
    Fixture fixture(scheduler);
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < 4; ++client) {
      clients.emplace_back([&, client] {
        Rng rng(client + 100);
        for (int i = 0; i < 30; ++i) {
          const auto n = static_cast<int32_t>(rng.between(1, 3));
          Request request = make_request(*fixture.engine, rng.next() >> 1,
                                         static_cast<int32_t>(rng.between(1, 120)),
                                         static_cast<int32_t>(rng.between(1, 40)), n);
          const Request copy = request;
          Collector collector(n);
          const Status status = fixture.engine->submit(std::move(request), collector.sink());
          ASSERT_TRUE(status.ok()) << status.message();
          ASSERT_TRUE(collector.wait_all());
          for (int32_t choice = 0; choice < n; ++choice) {
            ASSERT_EQ(collector.tokens(static_cast<size_t>(choice)), expected_tokens(copy, choice));
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    wait_idle(*fixture.engine);
    EXPECT_TRUE(fixture.engine->healthy());
    const EngineStats stats = fixture.engine->stats();
    EXPECT_EQ(std::accumulate(stats.steps_by_tokens.begin(), stats.steps_by_tokens.end(), 0u),
              stats.steps);
  }
}

// Conversations of several turns from several threads, with two system prompts and two salts: every
// turn but the first finds the one before it, and every token is the oracle's.
TEST(Engine, TellsOfItsLastSteps) {
  Fixture fixture;
  EXPECT_TRUE(fixture.engine->recent_steps(0).empty());
  Request request = make_request(*fixture.engine, 5, 100, 8);
  request.sampling.ignore_eos = true;
  Collector collector(1);
  ASSERT_TRUE(fixture.engine->submit(request, collector.sink()).ok());
  ASSERT_TRUE(collector.wait_all());
  const std::vector<PastStep> steps = fixture.engine->recent_steps(0);
  ASSERT_GE(steps.size(), 2u);
  EXPECT_LE(steps.size(), fixture.engine->stats().steps);
  int32_t prompt = 0, decode = 0;
  for (size_t i = 0; i < steps.size(); ++i) {
    EXPECT_EQ(steps[i].number, i + 1);
    EXPECT_GE(steps[i].age, steps[i].seconds);
    EXPECT_GE(steps[i].seconds, 0);
    EXPECT_EQ(steps[i].sequences, 1);
    prompt += steps[i].prompt_tokens;
    decode += steps[i].decode_tokens;
  }
  EXPECT_EQ(prompt, 100);
  EXPECT_GE(decode, 7);  // a step in flight behind the last may be for nobody
  EXPECT_GE(fixture.engine->recent_steps(steps.size() - 2).size(), 2u);
}

TEST(Engine, ConversationsFindTheirPrefixAndGetTheSameTokens) {
  for (int32_t depth : {1, 2}) {
    SchedulerOptions scheduler = small_scheduler();
    scheduler.steps_in_flight_max = depth;
    Fixture fixture(scheduler);
    std::atomic<int64_t> cached{0};
    std::vector<std::thread> clients;
    for (uint64_t client = 0; client < 4; ++client) {
      clients.emplace_back([&, client] {
        Rng rng(client + 7);
        for (int conversation = 0; conversation < 8; ++conversation) {
          std::vector<TokenId> tokens = make_request(*fixture.engine, client % 2, 40, 1).prompt;
          for (int turn = 0; turn < 3; ++turn) {
            Request request = make_request(*fixture.engine, rng.next() >> 1,
                                           static_cast<int32_t>(rng.between(1, 20)), 20);
            request.prompt.insert(request.prompt.begin(), tokens.begin(), tokens.end());
            request.cache_salt = client < 2 ? "a" : "b";
            const Request copy = request;
            Collector collector(1);
            ASSERT_TRUE(fixture.engine
                            ->submit(std::move(request),
                                     [&, sink = collector.sink()](const Emission& emission) {
                                       if (emission.finish != FinishReason::kNone) {
                                         cached += emission.cached_tokens;
                                       }
                                       sink(emission);
                                     })
                            .ok());
            ASSERT_TRUE(collector.wait_all());
            ASSERT_EQ(collector.tokens(0), expected_tokens(copy, 0));
            tokens = copy.prompt;
            const std::vector<TokenId> answer = collector.tokens(0);
            tokens.insert(tokens.end(), answer.begin(), answer.end());
          }
        }
      });
    }
    for (std::thread& client : clients) client.join();
    wait_idle(*fixture.engine);
    const SchedulerStats stats = fixture.engine->stats().scheduler;
    EXPECT_EQ(static_cast<int64_t>(stats.prefix_cache_hits), cached);
    EXPECT_GT(cached * 2, static_cast<int64_t>(stats.prefix_cache_queries)) << "most is found";
    EXPECT_GT(stats.blocks_cached, 0);
  }
}

// Nothing that is forgotten is found again, what runs keeps its pages, and a pin may end behind it.
TEST(Engine, TheCacheIsClearedWhileNothingRuns) {
  Fixture fixture(small_scheduler());
  Engine& engine = *fixture.engine;
  const auto clear = [&engine] {
    std::promise<bool> cleared;
    engine.clear_prefix_cache([&](bool done) { cleared.set_value(done); });
    return cleared.get_future().get();
  };
  const auto cached_of_next = [&] {
    Request request = make_request(engine, 3, 64, 4);
    std::promise<int32_t> cached;
    const Status status = engine.submit(std::move(request), [&](const Emission& emission) {
      if (emission.finish != FinishReason::kNone) cached.set_value(emission.cached_tokens);
    });
    CHECK(status.ok());
    const int32_t count = cached.get_future().get();
    wait_idle(engine);
    return count;
  };
  EXPECT_EQ(cached_of_next(), 0);
  EXPECT_GT(cached_of_next(), 0);
  std::promise<int64_t> pinned;
  engine.pin_prefix(7, "", make_request(engine, 3, 64, 4).prompt,
                    [&](int64_t tokens) { pinned.set_value(tokens); });
  EXPECT_GT(pinned.get_future().get(), 0);
  EXPECT_TRUE(clear());
  EXPECT_EQ(cached_of_next(), 0);
  engine.unpin_prefix(7);
  EXPECT_GT(cached_of_next(), 0);

  // It waits in its sink until the call has come, or might have ended before.
  Collector collector(1);
  std::promise<void> asked;
  std::promise<bool> cleared;
  const Status status = engine.submit(
      make_request(engine, 4, 8, 100),
      [sink = collector.sink(), come = asked.get_future().share()](const Emission& emission) {
        come.wait();
        sink(emission);
      });
  ASSERT_TRUE(status.ok());
  engine.clear_prefix_cache([&](bool done) { cleared.set_value(done); });
  asked.set_value();
  EXPECT_FALSE(cleared.get_future().get());
  ASSERT_TRUE(collector.wait_all());
}

// A runner that keeps to no form: such a request is refused, not answered as if it had none.
TEST(Engine, AFormIsRefusedWhereTheRunnerKeepsToNone) {
  struct AnyConstraint final : TokenConstraint {
    std::unique_ptr<TokenMatcher> begin() const override { return nullptr; }
  };
  Fixture fixture;
  EXPECT_FALSE(fixture.engine->takes_constraints());
  Request request = make_request(*fixture.engine, 7, 20, 4);
  request.constraint = std::make_shared<AnyConstraint>();
  const Status status = fixture.engine->submit(std::move(request), [](const Emission&) {});
  EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
  EXPECT_EQ(status.message(), "this model's engine takes no structured output");
}

TEST(Engine, CancelEndsWithAbortAndFreesTheBlocks) {
  Fixture fixture;
  fixture.controls->step_micros = 1000;
  Request request = make_request(*fixture.engine, 7, 20, 200);
  request.sampling.ignore_eos = true;
  const RequestId id = request.id;
  Collector collector(1);
  ASSERT_TRUE(fixture.engine->submit(std::move(request), collector.sink()).ok());
  ASSERT_TRUE(collector.wait_tokens(3));
  fixture.engine->cancel(id);
  ASSERT_TRUE(collector.wait_all());
  EXPECT_EQ(collector.finish(0), FinishReason::kAbort);
  wait_idle(*fixture.engine);
  fixture.engine->cancel(id);                 // late: an ordinary event
  fixture.engine->cancel(RequestId(999999));  // unknown: too
  fixture.engine->cancel_choice(id, 0);
  EXPECT_TRUE(fixture.engine->drain(5));
}

// Whoever is told of an end finds it in the figures: of a request that a step ended, and of one
// that was cancelled while it waited or ran.
TEST(Engine, AnEndIsCountedBeforeAnybodyHearsOfIt) {
  Fixture fixture;
  fixture.controls->step_micros = 1000;
  for (int32_t round = 0; round < 12; ++round) {
    Request request = make_request(*fixture.engine, static_cast<uint64_t>(round), 20, 8 + round, 2);
    request.sampling.ignore_eos = true;
    const RequestId id = request.id;
    Collector collector(2);
    std::array<SchedulerStats, 2> at_end;
    const EmissionSink collect = collector.sink();
    const EmissionSink sink = [&](const Emission& emission) {
      if (emission.finish != FinishReason::kNone) {
        at_end[static_cast<size_t>(emission.choice)] = fixture.engine->stats().scheduler;
      }
      collect(emission);
    };
    ASSERT_TRUE(fixture.engine->submit(std::move(request), sink).ok());
    if (round % 3 == 1) fixture.engine->cancel(id);
    if (round % 3 == 2) {
      ASSERT_TRUE(collector.wait_tokens(3));
      fixture.engine->cancel(id);
    }
    ASSERT_TRUE(collector.wait_all());
    EXPECT_EQ(at_end[1].running, 0) << "round " << round;
    EXPECT_EQ(at_end[1].waiting, 0) << "round " << round;
  }
}

TEST(Engine, ACancelledChoiceIsSilentAndItsTwinLives) {
  Fixture fixture;
  fixture.controls->step_micros = 1000;
  Request request = make_request(*fixture.engine, 8, 20, 60, 2);
  request.sampling.ignore_eos = true;
  const Request copy = request;
  Collector collector(2);
  ASSERT_TRUE(fixture.engine->submit(std::move(request), collector.sink()).ok());
  ASSERT_TRUE(collector.wait_tokens(3));
  fixture.engine->cancel_choice(copy.id, 0);
  for (int i = 0; i < 5000 && collector.finish(1) == FinishReason::kNone; ++i) {
    std::this_thread::sleep_for(1ms);
  }
  EXPECT_EQ(collector.finish(1), FinishReason::kLength);
  EXPECT_EQ(collector.finish(0), FinishReason::kNone);
  EXPECT_EQ(collector.tokens(1).size(), 60u);
  EXPECT_TRUE(fixture.engine->drain(5));
}

TEST(Engine, TheQueueIsBounded) {
  Fixture fixture;
  fixture.controls->hold = true;
  const SchedulerOptions options = small_scheduler();
  std::vector<std::unique_ptr<Collector>> collectors;
  const int room = options.max_num_seqs + options.max_queued_requests;
  for (int i = 0; i < room; ++i) {
    collectors.push_back(std::make_unique<Collector>(1));
    ASSERT_TRUE(fixture.engine
                    ->submit(make_request(*fixture.engine, static_cast<uint64_t>(i), 5, 5),
                             collectors.back()->sink())
                    .ok());
  }
  Collector refused(1);
  const Status status =
      fixture.engine->submit(make_request(*fixture.engine, 1, 5, 5), refused.sink());
  EXPECT_EQ(status.code(), StatusCode::kExhausted);
  fixture.controls->hold = false;
  for (auto& collector : collectors) EXPECT_TRUE(collector->wait_all());
}

TEST(Engine, WhatCanNeverRunIsRefusedWithItsField) {
  Fixture fixture;
  Collector collector(1);
  const auto field_of = [&](Request request) {
    const Status status = fixture.engine->submit(std::move(request), collector.sink());
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    return status.field();
  };
  EXPECT_EQ(field_of(make_request(*fixture.engine, 1, 0, 5)), "prompt");
  Request outside = make_request(*fixture.engine, 1, 5, 5);
  outside.prompt[2] = 1000;
  EXPECT_EQ(field_of(outside), "prompt");
  outside.prompt[2] = -1;
  EXPECT_EQ(field_of(outside), "prompt");
  Request biased = make_request(*fixture.engine, 1, 5, 5);
  biased.sampling.logit_bias = {{5000, 1.0f}};
  EXPECT_EQ(field_of(biased), "logit_bias");
  const Status too_long =
      fixture.engine->submit(make_request(*fixture.engine, 1, 300, 16), collector.sink());
  EXPECT_NE(too_long.message().find("300"), std::string::npos);
  EXPECT_NE(too_long.message().find("256"), std::string::npos);
}

TEST(Engine, AFailedStepEndsEveryRequestAndHealth) {
  Fixture fixture;
  fixture.controls->step_micros = 2000;
  Collector first(1), second(2);
  Request long_one = make_request(*fixture.engine, 1, 5, 200);
  long_one.sampling.ignore_eos = true;
  ASSERT_TRUE(fixture.engine->submit(std::move(long_one), first.sink()).ok());
  ASSERT_TRUE(
      fixture.engine->submit(make_request(*fixture.engine, 2, 5, 100, 2), second.sink()).ok());
  fixture.controls->fail_next_step = true;
  EXPECT_TRUE(first.wait_all());
  EXPECT_TRUE(second.wait_all());
  EXPECT_EQ(first.finish(0), FinishReason::kFault);
  EXPECT_FALSE(fixture.engine->healthy());
  Collector late(1);
  EXPECT_EQ(fixture.engine->submit(make_request(*fixture.engine, 3, 5, 5), late.sink()).code(),
            StatusCode::kUnavailable);
}

TEST(Engine, HealthSpeaksOfProgress) {
  Fixture fixture(small_scheduler(), 0.2);
  EXPECT_TRUE(fixture.engine->healthy());
  std::this_thread::sleep_for(300ms);
  EXPECT_TRUE(fixture.engine->healthy()) << "idle is not silence";
  fixture.controls->hold = true;
  Collector collector(1);
  ASSERT_TRUE(
      fixture.engine->submit(make_request(*fixture.engine, 3, 5, 5), collector.sink()).ok());
  std::this_thread::sleep_for(50ms);
  EXPECT_TRUE(fixture.engine->healthy());
  std::this_thread::sleep_for(400ms);
  EXPECT_FALSE(fixture.engine->healthy()) << "work waits and no step ends";
  fixture.controls->hold = false;
  EXPECT_TRUE(collector.wait_all());
  EXPECT_TRUE(fixture.engine->healthy());
}

TEST(Engine, DrainRefusesNewWorkAndFinishesTheOld) {
  Fixture fixture;
  fixture.controls->step_micros = 1000;
  Request request = make_request(*fixture.engine, 5, 10, 50);
  const Request copy = request;
  Collector collector(1), late(1);
  ASSERT_TRUE(fixture.engine->submit(std::move(request), collector.sink()).ok());
  EXPECT_TRUE(fixture.engine->drain(20));
  EXPECT_EQ(collector.tokens(0), expected_tokens(copy, 0));
  EXPECT_EQ(fixture.engine->submit(make_request(*fixture.engine, 3, 5, 5), late.sink()).code(),
            StatusCode::kUnavailable);
}

TEST(Engine, TheDestructorAbortsWhatRuns) {
  Collector collector(1);
  {
    Fixture fixture;
    fixture.controls->step_micros = 1000;
    Request request = make_request(*fixture.engine, 5, 10, 200);
    request.sampling.ignore_eos = true;
    ASSERT_TRUE(fixture.engine->submit(std::move(request), collector.sink()).ok());
    ASSERT_TRUE(collector.wait_tokens(2));
  }
  EXPECT_TRUE(collector.wait_all(0s));
  EXPECT_EQ(collector.finish(0), FinishReason::kAbort);
}

// What was taken as the engine's end began is told so.
TEST(Engine, NobodyIsForgottenAtTheEnd) {
  for (int round = 0; round < 50; ++round) {
    Collector collector(8);
    std::atomic<int> pins = 0;
    {
      Fixture f;
      for (int32_t i = 0; i < 8; ++i) {
        Request request;
        request.id = RequestId(static_cast<uint64_t>(i + 1));
        request.prompt = {1, 2, 3};
        request.sampling.max_tokens = 100;
        ASSERT_TRUE(f.engine
                        ->submit(std::move(request),
                                 [&, i, sink = collector.sink()](Emission emission) {
                                   emission.choice = i;
                                   emission.admitted = false;
                                   emission.tokens.clear();
                                   sink(emission);
                                 })
                        .ok());
      }
      f.engine->clear_prefix_cache([&](bool) { ++pins; });
    }
    EXPECT_TRUE(collector.wait_all(0s));
    EXPECT_EQ(pins, 1);
  }
}

}  // namespace
}  // namespace headrace::engine_test
