// A server of several models: what clients see of their coming and going.
#include <thread>
#include <vector>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/pool_fixture.h"
#include "server/server_fixture.h"

namespace headrace::server_models_test {
namespace {

struct ModelsServer {
  explicit ModelsServer(ModelPoolOptions pool = {}, ServerOptions options = {}) {
    options.port = 0;
    options.handle_signals = false;
    options.allowed_hosts.push_back("x");
    server = std::move(*Server::create(std::move(options)));
    CHECK(server->start().ok());
    pool.failed_seconds = 0;
    CHECK(server->set_models(pool, {a.spec(), b.spec()}, std::nullopt).ok());
  }
  TestResponse get(std::string_view path) { return TestClient(server->port()).get(path).value(); }
  TestResponse post(std::string_view path, std::string_view json) {
    return TestClient(server->port()).post_text(path, json).value();
  }
  // What the model says to a completion.
  static std::string body(std::string_view model, int tokens = 4) {
    return fmt::format(R"({{"model":"{}","prompt":"hi","max_tokens":{}}})", model, tokens);
  }
  std::string ask(std::string_view model) {
    const TestResponse response = post(kCompletions, body(model));
    if (response.status != 200) return fmt::format("{}: {}", response.status, response.body);
    return at(choice(response.json()), "text").as_string();
  }
  std::string state(std::string_view model) {
    const Json models = get("/v1/models").json();
    for (const Json& card : at(models, "data").as_array()) {
      if (at(card, "id") == Json(model)) return at(at(card, "status"), "value").as_string();
    }
    return "";
  }

  WatchedModel a{"a"}, b{"b"};
  std::unique_ptr<Server> server;
};

TEST(ServerModels, ARequestLoadsTheModelThatItNames) {
  ModelsServer f;
  EXPECT_EQ(f.get("/health").status, 200);
  EXPECT_EQ(f.state("a"), "unloaded");
  EXPECT_EQ(f.ask("b"), "b");
  EXPECT_EQ(f.ask("a"), "a");
  EXPECT_EQ(f.state("a"), "loaded");
  const TestResponse unknown = f.post(kCompletions, f.body("c"));
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(unknown.error_param(), "model");
  // One that names none means the first.
  EXPECT_EQ(at(choice(f.post(kCompletions, R"({"prompt":"hi"})").json()), "text"), Json("a"));
}

// Ollama's clients show how long a model took to come.
TEST(ServerModels, TheWaitForALoadIsTold) {
  ModelsServer f;
  const auto load_duration = [&] {
    return at(f.post("/api/generate", R"({"model":"a","prompt":"hi","stream":false})").json(),
              "load_duration")
        .as_int();
  };
  std::atomic<bool> holds{false};
  std::thread holder([&] {
    std::lock_guard lock(f.a.held);
    holds = true;
    EXPECT_TRUE(eventually([&] { return f.state("a") == "loading"; }));
    std::this_thread::sleep_for(std::chrono::milliseconds(50));
  });
  while (!holds) std::this_thread::yield();
  EXPECT_GE(load_duration(), 50'000'000);
  holder.join();
  EXPECT_EQ(load_duration(), 0);  // it is there
}

TEST(ServerModels, WithoutADefaultARequestNamesItsModel) {
  ModelsServer f({.has_default = false});
  const TestResponse response = f.post(kCompletions, R"({"prompt":"hi"})");
  EXPECT_EQ(response.status, 400);
  EXPECT_EQ(response.error_param(), "model");
}

TEST(ServerModels, AThousandSwitches) {
  ModelsServer f({.loaded_max = 1});
  TestClient client(f.server->port());
  int failures = 0;
  for (int i = 0; i < 1000; ++i) {
    const std::string name = i % 2 == 0 ? "a" : "b";
    const auto response = client.post_text(kCompletions, f.body(name));
    const bool right =
        response && response->status == 200 && at(choice(response->json()), "text") == Json(name);
    if (!right) ++failures;
  }
  EXPECT_EQ(failures, 0);
  EXPECT_EQ(f.a.loads + f.b.loads, 1000);
  EXPECT_EQ(f.a.alive + f.b.alive, 1);
}

TEST(ServerModels, BothAreAskedAtOnce) {
  ModelsServer f({.loaded_max = 1});
  std::atomic<int> failures{0};
  std::vector<std::thread> clients;
  for (int c = 0; c < 4; ++c) {
    clients.emplace_back([&, c] {
      TestClient client(f.server->port());
      const std::string name = c % 2 == 0 ? "a" : "b";
      for (int i = 0; i < 25; ++i) {
        const auto response = client.post_text(kCompletions, f.body(name));
        const bool right = response && response->status == 200 &&
                           at(choice(response->json()), "text") == Json(name);
        if (!right) ++failures;
      }
    });
  }
  for (std::thread& client : clients) client.join();
  EXPECT_EQ(failures, 0);
}

TEST(ServerModels, AStreamEndsBeforeItsModelGoes) {
  ModelsServer f({.loaded_max = 1});
  f.a.engine.step_seconds = 0.002;
  ASSERT_EQ(f.ask("a"), "a");
  f.a.current.load()->engine->set_paused(true);
  TestClient stream(f.server->port());
  stream.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                  f.body("a").size(), f.body("a")));
  ASSERT_TRUE(eventually([&] { return f.a.current.load()->engine->submitted() == 2; }));
  std::string other;
  std::thread asks([&] { other = f.ask("b"); });
  std::this_thread::sleep_for(std::chrono::milliseconds(30));
  EXPECT_EQ(f.a.alive, 1);
  EXPECT_EQ(f.b.loads, 0);
  f.a.current.load()->engine->set_paused(false);
  EXPECT_EQ(stream.read_response()->status, 200);
  asks.join();
  EXPECT_EQ(other, "b");
  EXPECT_EQ(f.a.alive, 0);
}

TEST(ServerModels, AFailedLoadIsAnAnswer) {
  ModelsServer f;
  ASSERT_EQ(f.ask("a"), "a");
  f.b.failures = 1;
  const TestResponse response = f.post(kCompletions, f.body("b"));
  EXPECT_EQ(response.status, 500);
  EXPECT_NE(response.body.find("model b failed to load: b: it is torn"), std::string::npos);
  EXPECT_EQ(f.state("b"), "failed");
  EXPECT_EQ(f.ask("a"), "a");
  EXPECT_EQ(f.ask("b"), "b");
}

TEST(ServerModels, AClientThatLeavesWhileItWaitsIsForgotten) {
  ModelsServer f;
  f.a.held.lock();
  {
    TestClient client(f.server->port());
    client.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                    f.body("a").size(), f.body("a")));
    ASSERT_TRUE(eventually([&] { return f.a.loads == 1; }));
    // Others are served meanwhile: no thread of the server waits.
    EXPECT_EQ(f.get("/health").status, 200);
    TestClient waits(f.server->port());
    waits.send(
        fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                    f.body("b").size(), f.body("b")));
    std::this_thread::sleep_for(std::chrono::milliseconds(20));
  }
  std::this_thread::sleep_for(std::chrono::milliseconds(50));
  f.a.held.unlock();
  EXPECT_EQ(f.ask("a"), "a");
  EXPECT_EQ(f.b.loads, 0);  // nobody waited for it any more
}

TEST(ServerModels, TheWaitIsBounded) {
  ServerOptions options;
  options.requests.model_load_seconds_max = 0.05;
  ModelsServer f({}, options);
  f.a.held.lock();
  const TestResponse response = f.post(kCompletions, f.body("a"));
  f.a.held.unlock();
  EXPECT_EQ(response.status, 503);
  EXPECT_NE(response.body.find("not loaded within 0.05 s"), std::string::npos);
}

TEST(ServerModels, AStopWhileLoadingAnswersWhoWaits) {
  ModelsServer f;
  f.a.held.lock();
  TestClient client(f.server->port());
  client.send(
      fmt::format("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                  f.body("a").size(), f.body("a")));
  ASSERT_TRUE(eventually([&] { return f.a.loads == 1; }));
  f.server->drain();
  EXPECT_EQ(client.read_response()->status, 503);
  EXPECT_TRUE(f.server->wait());
  f.a.held.unlock();
  f.server.reset();
  EXPECT_EQ(f.a.alive, 0);
}

TEST(ServerModels, OrdersLoadAndUnload) {
  ModelsServer f({.loads_on_request = false});
  EXPECT_EQ(f.post(kCompletions, f.body("a")).status, 400);
  EXPECT_EQ(f.post("/models/load", R"({"model":"a"})").status, 200);
  EXPECT_EQ(f.ask("a"), "a");
  EXPECT_EQ(f.post("/models/load", R"({"model":"c"})").status, 404);
  EXPECT_EQ(f.post("/models/load", R"({})").status, 400);
  EXPECT_EQ(f.post("/models/unload", R"({"model":"a"})").status, 200);
  EXPECT_EQ(f.state("a"), "unloaded");
  EXPECT_EQ(f.a.alive, 0);
  EXPECT_EQ(f.get("/props?model=a").status, 503);
}

TEST(ServerModels, SleepAndWake) {
  ModelsServer f({.loads_on_request = false});
  EXPECT_EQ(f.post("/models/load", R"({"model":"b"})").status, 200);
  EXPECT_EQ(f.get("/is_sleeping").json(), Json::object().set("is_sleeping", false));
  EXPECT_EQ(f.post("/sleep?level=3", "").status, 400);
  EXPECT_EQ(f.post("/sleep?level=1", "").status, 200);
  EXPECT_EQ(f.get("/is_sleeping").json(), Json::object().set("is_sleeping", true));
  EXPECT_EQ(f.state("b"), "sleeping");
  EXPECT_EQ(f.state("a"), "unloaded");
  EXPECT_EQ(f.post("/wake_up", "").status, 200);
  EXPECT_EQ(f.state("b"), "loaded");
  EXPECT_EQ(f.post("/sleep?model=b", "").status, 200);
  EXPECT_EQ(f.ask("b"), "b");  // wakes it
}

TEST(ServerModels, OllamaSeesWhatIsLoaded) {
  ModelsServer f({.follows_keep_alive = true});
  EXPECT_EQ(at(f.get("/api/tags").json(), "models").as_array().size(), 2u);
  EXPECT_TRUE(at(f.get("/api/ps").json(), "models").as_array().empty());
  EXPECT_EQ(f.post("/api/show", R"({"model":"b"})").status, 200);
  EXPECT_EQ(f.b.loads, 0);
  const Json loaded = f.post("/api/generate", R"({"model":"b:latest","keep_alive":"5m"})").json();
  EXPECT_EQ(at(loaded, "done_reason"), Json("load"));
  const Json ps = f.get("/api/ps").json();
  ASSERT_EQ(at(ps, "models").as_array().size(), 1u);
  EXPECT_EQ(at(at(ps, "models").as_array()[0], "name"), Json("b"));
  const Json gone = f.post("/api/generate", R"({"model":"b","keep_alive":0})").json();
  EXPECT_EQ(at(gone, "done_reason"), Json("unload"));
  EXPECT_EQ(f.b.alive, 0);
  const TestResponse answer =
      f.post("/api/generate", R"({"model":"a","prompt":"hi","stream":false,"keep_alive":0})");
  EXPECT_EQ(answer.status, 200);
  EXPECT_TRUE(eventually([&] { return f.a.alive == 0; }));
}

TEST(ServerModels, MetricsAreOfEachModel) {
  ModelsServer f({.loaded_max = 1});
  ASSERT_EQ(f.ask("a"), "a");
  ASSERT_EQ(f.ask("b"), "b");
  ASSERT_EQ(f.ask("a"), "a");
  const std::string text = f.get("/metrics").body;
  const auto has = [&](std::string_view line) { return text.find(line) != text.npos; };
  EXPECT_TRUE(
      has(R"(vllm:request_success_total{engine="0",finished_reason="stop",model_name="a"} 2)"))
      << text.substr(0, 4000);
  EXPECT_TRUE(
      has(R"(vllm:request_success_total{engine="0",finished_reason="stop",model_name="b"} 1)"));
  const std::string type = "# TYPE vllm:request_success_total";
  EXPECT_EQ(text.find(type), text.rfind(type));
}

}  // namespace
}  // namespace headrace::server_models_test
