#include "server/model_pool.h"

#include <future>
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/pool_fixture.h"
#include "server/server_fixture.h"

namespace headrace::model_pool_test {
namespace {

// A pool of models "a", "b", ... with a clock that stands still unless a test moves it.
struct PoolRig {
  explicit PoolRig(int count, ModelPoolOptions options = {}) {
    options.failed_seconds = 0;
    std::vector<ServedModelSpec> specs;
    for (int i = 0; i < count; ++i) {
      models.push_back(std::make_unique<WatchedModel>(std::string(1, static_cast<char>('a' + i))));
      models.back()->alive_of_all = &alive;
      specs.push_back(models.back()->spec());
    }
    CHECK(pool.open(options, std::move(specs), std::nullopt).ok());
  }
  std::future<Result<ModelLease>> ask(size_t place, ModelPool::Why why = ModelPool::Why::kRequest) {
    auto told = std::make_shared<std::promise<Result<ModelLease>>>();
    auto future = told->get_future();
    last_ticket = pool.acquire(
        place, why, [told](Result<ModelLease> model) { told->set_value(std::move(model)); });
    return future;
  }
  ModelLease use(size_t place) {
    Result<ModelLease> model = ask(place).get();
    CHECK_MSG(model.ok(), "it was not loaded");
    return std::move(*model);
  }
  bool in_state(size_t place, ModelState state) {
    return eventually([&] { return pool.status(place).state == state; });
  }
  ModelState state(size_t place) { return pool.status(place).state; }

  VirtualClock clock;
  std::atomic<int> alive{0};
  std::vector<std::unique_ptr<WatchedModel>> models;
  ModelPool pool{clock, {}};
  ModelPool::Ticket last_ticket = 0;
};

// What clients fetch comes behind what was there, also where that is nothing.
TEST(ModelPool, OneThatGrowsTakesMore) {
  PoolRig rig(0, {.has_default = false, .grows = true});
  EXPECT_EQ(rig.pool.size(), 0u);
  EXPECT_EQ(rig.pool.only(), nullptr);
  EXPECT_FALSE(rig.pool.find("x"));
  WatchedModel x("x"), same("x"), y("y");
  ASSERT_TRUE(rig.pool.add(x.spec()).ok());
  EXPECT_EQ(rig.pool.add(same.spec()).code(), StatusCode::kInvalidArgument);
  const ModelLease first = rig.use(*rig.pool.find("x"));
  EXPECT_EQ(first->served.names, std::vector<std::string>{"x"});
  // While others ask for what there is.
  std::atomic<bool> done{false};
  std::thread asks([&] {
    while (!done) {
      for (size_t place = 0; place < rig.pool.size(); ++place) (void)rig.pool.status(place);
      (void)rig.pool.find("m7");
    }
  });
  std::vector<std::unique_ptr<WatchedModel>> more;
  for (int i = 0; i < 500; ++i) {
    more.push_back(std::make_unique<WatchedModel>(fmt::format("m{}", i)));
    ASSERT_TRUE(rig.pool.add(more.back()->spec()).ok());
  }
  done = true;
  asks.join();
  EXPECT_EQ(rig.use(*rig.pool.find("m499"))->served.names.front(), "m499");
  EXPECT_EQ(rig.use(*rig.pool.find("x")), first);
  rig.pool.close();
}

TEST(ModelPool, ARequestLoadsItsModelOnce) {
  PoolRig rig(2);
  EXPECT_EQ(rig.pool.try_acquire(0), nullptr);
  const ModelLease model = rig.use(0);
  EXPECT_EQ(model->served.names, std::vector<std::string>{"a"});
  EXPECT_EQ(rig.use(0), model);
  EXPECT_EQ(rig.models[0]->loads, 1);
  EXPECT_EQ(rig.state(1), ModelState::kUnloaded);
  EXPECT_EQ(rig.pool.status(0).facts.memory_bytes, 150);
}

TEST(ModelPool, TheLongestUnusedMakesRoom) {
  PoolRig rig(3, {.loaded_max = 2});
  (void)rig.use(0);
  rig.clock.advance_ns(1'000'000);
  (void)rig.use(1);
  rig.clock.advance_ns(1'000'000);
  (void)rig.use(0);
  rig.clock.advance_ns(1'000'000);
  (void)rig.use(2);
  EXPECT_EQ(rig.state(0), ModelState::kReady);
  EXPECT_EQ(rig.state(1), ModelState::kUnloaded);
  EXPECT_EQ(rig.alive, 2);
}

TEST(ModelPool, MemoryIsCountedAsTheLastLoadFoundIt) {
  PoolRig rig(3, {.memory_bytes_max = 300});
  (void)rig.use(0);
  (void)rig.use(1);  // 150 of the first, 100 by its file
  EXPECT_EQ(rig.alive, 2);
  (void)rig.use(2);  // beside 2 * 150 there is no room for 100
  EXPECT_EQ(rig.alive, 2);
  EXPECT_EQ(rig.state(0), ModelState::kUnloaded);
}

TEST(ModelPool, AFileOverTheBoundIsRefused) {
  PoolRig rig(1, {.memory_bytes_max = 99});
  const auto model = rig.ask(0).get();
  ASSERT_FALSE(model.ok());
  EXPECT_NE(model.status().message().find("99 bytes (--models-memory"), std::string::npos);
  EXPECT_EQ(rig.models[0]->loads, 0);
}

TEST(ModelPool, ALoadThatFindsNoMemoryUnloadsAnother) {
  PoolRig rig(3);
  rig.models[2]->fits_beside = 1;
  (void)rig.use(0);
  rig.clock.advance_ns(1'000'000);
  (void)rig.use(1);
  (void)rig.use(2);
  EXPECT_EQ(rig.state(0), ModelState::kUnloaded);
  EXPECT_EQ(rig.models[2]->loads, 2);
  rig.models[2]->fits_beside = 0;
  rig.models[0]->fits_beside = 0;
  rig.pool.unload(2, ModelState::kUnloaded, [](const Status&) {});
  (void)rig.use(2);
  EXPECT_EQ(rig.alive, 1);
}

TEST(ModelPool, AModelWithRequestsUnderWayIsNotUnloaded) {
  PoolRig rig(2, {.loaded_max = 1});
  ModelLease held = rig.use(0);
  auto other = rig.ask(1);
  EXPECT_EQ(other.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  EXPECT_EQ(rig.models[0]->alive, 1);
  EXPECT_EQ(rig.pool.try_acquire(0), nullptr);  // it goes: new ones wait, else b never had a turn
  auto again = rig.ask(0);
  held.reset();
  Result<ModelLease> b = other.get();
  ASSERT_TRUE(b.ok());
  EXPECT_EQ(rig.models[0]->alive, 0);
  EXPECT_EQ(again.wait_for(std::chrono::milliseconds(50)), std::future_status::timeout);
  b = not_found("let go");
  EXPECT_TRUE(again.get().ok());
  EXPECT_EQ(rig.models[1]->alive, 0);
}

TEST(ModelPool, AFailedLoadTouchesNobodyElse) {
  PoolRig rig(2);
  const ModelLease a = rig.use(0);
  rig.models[1]->failures = 1;
  const auto b = rig.ask(1).get();
  ASSERT_FALSE(b.ok());
  EXPECT_EQ(b.status().message(), "model b failed to load: b: it is torn");  // without its path
  EXPECT_EQ(rig.state(1), ModelState::kFailed);
  EXPECT_EQ(rig.pool.try_acquire(0), a);
  EXPECT_TRUE(rig.ask(1).get().ok());  // tried again
}

TEST(ModelPool, AFailureIsRememberedForAWhile) {
  VirtualClock clock;
  ModelPool pool(clock, {});
  WatchedModel made("x");
  made.failures = 2;
  ASSERT_TRUE(pool.open({.failed_seconds = 5}, {made.spec()}, std::nullopt).ok());
  const auto ask = [&](ModelPool::Why why) {
    std::promise<bool> told;
    pool.acquire(0, why, [&](const Result<ModelLease>& model) { told.set_value(model.ok()); });
    return told.get_future().get();
  };
  EXPECT_FALSE(ask(ModelPool::Why::kRequest));
  EXPECT_FALSE(ask(ModelPool::Why::kRequest));
  EXPECT_EQ(made.loads, 1);
  EXPECT_FALSE(ask(ModelPool::Why::kOrder));
  EXPECT_EQ(made.loads, 2);
  clock.advance_ns(6'000'000'000);
  EXPECT_TRUE(ask(ModelPool::Why::kRequest));
}

TEST(ModelPool, IdleModelsSleepAndWake) {
  PoolRig rig(2, {.idle_seconds = 10, .loads_on_request = false});
  ASSERT_TRUE(rig.ask(0, ModelPool::Why::kOrder).get().ok());
  ModelLease held = rig.use(0);
  rig.clock.advance_ns(60'000'000'000);
  held.reset();  // used until now
  EXPECT_EQ(rig.state(0), ModelState::kReady);
  EXPECT_NEAR(rig.pool.status(0).idle_in_seconds, 10, 1e-6);
  rig.clock.advance_ns(11'000'000'000);
  rig.pool.keep_alive(1, 10);  // its thread looks at the clock
  EXPECT_TRUE(rig.in_state(0, ModelState::kSleeping));
  (void)rig.use(0);  // wakes it, though requests do not load
  const auto other = rig.ask(1).get();
  ASSERT_FALSE(other.ok());
  EXPECT_EQ(other.status().code(), StatusCode::kInvalidArgument);
}

TEST(ModelPool, KeepAliveIsOfItsModel) {
  PoolRig rig(2);
  (void)rig.use(1);
  (void)rig.use(0);
  rig.pool.keep_alive(0, 0);
  EXPECT_TRUE(rig.in_state(0, ModelState::kSleeping));
  EXPECT_EQ(rig.state(1), ModelState::kReady);
  (void)rig.use(0);
  EXPECT_EQ(rig.pool.status(0).idle_in_seconds, kNeverIdle);  // it was for that time
}

TEST(ModelPool, WhoGaveUpIsNotTold) {
  PoolRig rig(2);
  rig.models[0]->held.lock();
  auto first = rig.ask(0);
  ASSERT_TRUE(rig.in_state(0, ModelState::kLoading));
  auto gone = rig.ask(1);
  rig.pool.give_up(rig.last_ticket);
  rig.models[0]->held.unlock();
  EXPECT_TRUE(first.get().ok());
  EXPECT_THROW(gone.get(), std::future_error);  // its promise went untold
  EXPECT_EQ(rig.models[1]->loads, 0);
}

TEST(ModelPool, AStopEndsTheWait) {
  PoolRig rig(1);
  rig.models[0]->held.lock();
  auto model = rig.ask(0);
  ASSERT_TRUE(rig.in_state(0, ModelState::kLoading));
  rig.pool.stop_loads();
  EXPECT_EQ(model.get().status().code(), StatusCode::kUnavailable);
  EXPECT_TRUE(rig.pool.is_loading());
  EXPECT_EQ(rig.ask(0).get().status().code(), StatusCode::kUnavailable);
  rig.models[0]->held.unlock();
  rig.pool.close();
  EXPECT_EQ(rig.models[0]->alive, 0);
}

TEST(ModelPool, UnloadIsToldWhenItIsDone) {
  PoolRig rig(1);
  ModelLease held = rig.use(0);
  std::promise<Status> done;
  rig.pool.unload(0, ModelState::kSleeping, [&](const Status& status) { done.set_value(status); });
  auto future = done.get_future();
  EXPECT_EQ(future.wait_for(std::chrono::milliseconds(20)), std::future_status::timeout);
  held.reset();
  EXPECT_TRUE(future.get().ok());
  EXPECT_EQ(rig.alive, 0);
  EXPECT_EQ(rig.state(0), ModelState::kSleeping);
}

TEST(ModelPool, TwoOfOneNameAreRefused) {
  SystemClock clock;
  ModelPool pool(clock, {});
  WatchedModel one("x"), two("x");
  const Status status = pool.open({}, {one.spec(), two.spec()}, std::nullopt);
  EXPECT_EQ(status.message(), "two models are called x: name one of them otherwise (NAME=PATH)");
}

// Else a request of that name would go to one of the two, and nobody would know.
TEST(ModelPool, AnAdaptersNameIsNoOtherModelsOrAdapters) {
  const auto refusal = [](const std::string& of_first) {
    SystemClock clock;
    ModelPool pool(clock, {});
    std::vector<ServedModelSpec> specs(2);
    specs[0].names = {"a"};
    specs[0].adapter_names = {of_first};
    specs[1].names = {"b"};
    specs[1].adapter_names = {"sql"};
    return std::string(pool.open({}, std::move(specs), std::nullopt).message());
  };
  for (const char* const name : {"b", "sql"}) {
    EXPECT_EQ(refusal(name), fmt::format("an adapter is called {} as is another model or an "
                                         "adapter of it: name one of them otherwise (NAME=PATH)",
                                         name));
  }
}

// Many threads, three models with room for two: nobody fails, and nothing is used that is gone.
TEST(ModelPool, ManyThreadsSwitchModels) {
  PoolRig rig(3, {.loaded_max = 2});
  std::atomic<int> failures{0};
  std::vector<std::thread> threads;
  for (size_t t = 0; t < 4; ++t) {
    threads.emplace_back([&, t] {
      for (size_t i = 0; i < 100; ++i) {
        const size_t place = (t * 7 + i * i) % 3;
        auto told = std::make_shared<std::promise<bool>>();
        rig.pool.acquire(place, ModelPool::Why::kRequest,
                         [&, told, place](Result<ModelLease> model) {
                           told->set_value(model.ok() && rig.models[place]->alive == 1 &&
                                           (*model)->served.engine->healthy());
                         });
        if (!told->get_future().get()) ++failures;
      }
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(failures, 0);
  EXPECT_LE(rig.alive, 2);
}

}  // namespace
}  // namespace headrace::model_pool_test
