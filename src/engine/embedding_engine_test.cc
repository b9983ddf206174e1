#include "engine/embedding_engine.h"

#include <gtest/gtest.h>

#include <future>
#include <optional>

#include "engine/fake_embedding_runner.h"

namespace headrace::embedding_engine_test {
namespace {

using Texts = std::vector<std::vector<TokenId>>;

struct EmbeddingFixture {
  explicit EmbeddingFixture(EmbeddingOptions options = {.pass_tokens_max = 16}) {
    auto made = std::make_unique<FakeEmbeddingRunner>();
    runner = made.get();
    engine = EmbeddingEngine::create(options, std::move(made));
  }
  ~EmbeddingFixture() {
    if (runner) runner->paused = false;
  }

  // Stops the engine in a pass of a text of its own.
  void pause() {
    const size_t before = runner->passes().size();
    runner->paused = true;
    busy = submit({{7}});
    while (runner->passes().size() == before) std::this_thread::yield();
  }
  std::shared_future<EmbeddingResult> submit(Texts texts, RequestId* id = nullptr) {
    auto done = std::make_shared<std::promise<EmbeddingResult>>();
    const auto request =
        engine->submit(single_texts(std::move(texts)),
                       [done](EmbeddingResult result) { done->set_value(std::move(result)); });
    CHECK(request.ok());
    if (id != nullptr) *id = *request;
    return done->get_future().share();
  }
  Status refusal(Texts texts) {
    return engine
        ->submit(single_texts(std::move(texts)), [](const EmbeddingResult&) { ADD_FAILURE(); })
        .status();
  }

  FakeEmbeddingRunner* runner;
  std::shared_future<EmbeddingResult> busy;
  std::unique_ptr<EmbeddingEngine> engine;
};

TEST(EmbeddingEngine, VectorsComeInTheOrderOfTheTexts) {
  EmbeddingFixture f;
  const EmbeddingResult result = f.submit({{1, 2, 3}, {4}, {5, 6}}).get();
  ASSERT_TRUE(result.status.ok());
  EXPECT_EQ(result.vectors, (std::vector<float>{3, 1, 3, 0, 1, 4, 4, 0, 2, 5, 6, 0}));
}

TEST(EmbeddingEngine, APassHoldsTextsOfManyRequestsInTurn) {
  EmbeddingFixture f;  // 16 tokens a pass
  f.pause();
  const auto list = f.submit(Texts(20, std::vector<TokenId>(4, 1)));
  const auto single = f.submit({{2, 2, 2, 2}});
  f.runner->paused = false;
  ASSERT_TRUE(single.get().status.ok());
  ASSERT_TRUE(list.get().status.ok());
  const std::vector<size_t> passes = f.runner->passes();
  EXPECT_EQ(passes, (std::vector<size_t>{1, 4, 4, 4, 4, 4, 1}));
  // The single text was in the first of them, beside three of the list.
  EXPECT_EQ(f.runner->first_ids(1), (std::vector<TokenId>{1, 2, 1, 1}));
  EXPECT_EQ(f.engine->stats().tokens, 1u + 21 * 4);
}

TEST(EmbeddingEngine, ATextLongerThanAPassHasOneToItself) {
  EmbeddingFixture f({.pass_tokens_max = 8});
  f.pause();
  const auto list = f.submit({{1}, std::vector<TokenId>(12, 2), {3}, {4}});
  const auto other = f.submit({{5}});
  f.runner->paused = false;
  ASSERT_TRUE(list.get().status.ok() && other.get().status.ok());
  EXPECT_EQ(f.runner->first_ids(1), (std::vector<TokenId>{1, 5}));
  EXPECT_EQ(f.runner->first_ids(2), (std::vector<TokenId>{2}));
  EXPECT_EQ(f.runner->first_ids(3), (std::vector<TokenId>{3, 4}));
}

TEST(EmbeddingEngine, WhatWasCancelledIsDroppedAndNotCalled) {
  EmbeddingFixture f;
  f.pause();
  RequestId waiting;
  const auto dropped = f.submit(Texts(8, {1, 2}), &waiting);
  const auto next = f.submit({{3}});
  EXPECT_FALSE(f.engine->started(waiting));
  f.engine->cancel(waiting);
  f.engine->cancel(waiting);  // nothing
  EXPECT_THROW(dropped.get(), std::future_error);
  f.runner->paused = false;
  EXPECT_TRUE(next.get().status.ok());
  EXPECT_EQ(f.engine->stats().texts, 2u);
}

TEST(EmbeddingEngine, RefusesByTheFieldAndTheBound) {
  EmbeddingFixture f({.pass_tokens_max = 16, .queued_requests_max = 3, .queued_tokens_max = 20});
  for (const Texts& texts :
       {Texts{}, Texts{{1}, {}}, Texts{std::vector<TokenId>(17, 1)}, Texts{{1000}}, Texts{{-1}}}) {
    const Status status = f.refusal(texts);
    EXPECT_EQ(status.code(), StatusCode::kInvalidArgument);
    EXPECT_EQ(status.field(), "input");
  }
  f.pause();
  const auto first = f.submit({std::vector<TokenId>(12, 1)});
  EXPECT_EQ(f.refusal({std::vector<TokenId>(9, 1)}).code(), StatusCode::kExhausted);
  const auto second = f.submit({{1}});
  EXPECT_EQ(f.refusal({{1}}).code(), StatusCode::kExhausted);  // three requests
  EXPECT_GE(f.engine->retry_after_seconds(), 1);
  f.runner->paused = false;
  EXPECT_TRUE(first.get().status.ok() && second.get().status.ok());
}

TEST(EmbeddingEngine, AVectorThatIsNoneEndsItsOwnRequestAlone) {
  EmbeddingFixture f;
  f.pause();
  const auto bad = f.submit({{1}, {999}});
  const auto good = f.submit({{2}});
  f.runner->paused = false;
  EXPECT_EQ(bad.get().status.code(), StatusCode::kInternal);
  EXPECT_TRUE(good.get().status.ok());
}

TEST(EmbeddingEngine, APassThatThrowsEndsItsOwnRequestsAlone) {
  EmbeddingFixture f({.pass_tokens_max = 16, .queued_tokens_max = 60});
  f.pause();
  const auto bad = f.submit({{FakeEmbeddingRunner::kThrows}, std::vector<TokenId>(16, 1), {1}});
  const auto beside = f.submit({std::vector<TokenId>(15, 2)});
  const auto later = f.submit({std::vector<TokenId>(16, 3)});
  f.runner->paused = false;
  EXPECT_EQ(bad.get().status.code(), StatusCode::kInternal);
  EXPECT_EQ(beside.get().status.code(), StatusCode::kInternal);
  EXPECT_TRUE(later.get().status.ok());
  EXPECT_TRUE(f.engine->healthy());
  // What was not computed waits no longer.
  f.pause();
  const auto next = f.submit({std::vector<TokenId>(16, 1), std::vector<TokenId>(16, 1),
                              std::vector<TokenId>(16, 1), std::vector<TokenId>(12, 1)});
  f.runner->paused = false;
  EXPECT_TRUE(next.get().status.ok());
}

TEST(EmbeddingEngine, ASinkThatThrowsLosesItsOwnAnswerAlone) {
  EmbeddingFixture f;
  f.pause();
  const auto thrower =
      f.engine->submit(single_texts({{1}}), [](const EmbeddingResult&) { throw std::bad_alloc(); });
  ASSERT_TRUE(thrower.ok());
  const auto beside = f.submit({{2}});
  f.runner->paused = false;
  EXPECT_TRUE(beside.get().status.ok());
}

TEST(EmbeddingEngine, AllAreToldWhenItStops) {
  EmbeddingFixture f;
  f.pause();
  const auto waiting = f.submit({{1}});
  f.engine->cancel_all();
  EXPECT_EQ(waiting.get().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(f.busy.get().status.code(), StatusCode::kUnavailable);
  EXPECT_EQ(f.refusal({{1}}).code(), StatusCode::kUnavailable);
}

TEST(EmbeddingEngine, HealthSpeaksOfProgress) {
  EmbeddingFixture f({.pass_tokens_max = 16, .watchdog_seconds = 0.02});
  EXPECT_TRUE(f.engine->healthy());
  f.pause();
  while (f.engine->healthy()) std::this_thread::sleep_for(std::chrono::milliseconds(5));
  f.runner->paused = false;
  EXPECT_TRUE(f.busy.get().status.ok());
  EXPECT_TRUE(f.engine->healthy());
}

TEST(EmbeddingEngine, ALongPassThatAdvancesIsHealthy) {
  EmbeddingFixture f({.pass_tokens_max = 16, .watchdog_seconds = 0.1});
  f.runner->advances = true;
  f.pause();
  std::this_thread::sleep_for(std::chrono::milliseconds(300));
  EXPECT_TRUE(f.engine->healthy());
  f.runner->paused = false;
  EXPECT_TRUE(f.busy.get().status.ok());
}

TEST(EmbeddingEngine, AnEndWaitsForNoLongPass) {
  EmbeddingFixture f;
  f.runner->advances = true;
  f.pause();
  f.engine.reset();  // would wait for ever: nobody ends the pause
  f.runner = nullptr;
  EXPECT_EQ(f.busy.get().status.code(), StatusCode::kUnavailable);
}

TEST(EmbeddingEngine, AShortenedVectorHasLengthOneAgain) {
  const FakeEmbeddingRunner runner;
  std::vector<float> vector = {3, 4, 5, 6};
  shorten_vector(runner, vector, 2);
  EXPECT_FLOAT_EQ(vector[0], 0.6f);
  EXPECT_FLOAT_EQ(vector[1], 0.8f);
  std::vector<float> whole = {3, 4, 5, 6};
  shorten_vector(runner, whole, 4);
  EXPECT_EQ(whole, (std::vector<float>{3, 4, 5, 6}));
}

}  // namespace
}  // namespace headrace::embedding_engine_test
