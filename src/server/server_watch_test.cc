// What a dashboard watches: steps, the log, requests by key.
#include <gtest/gtest.h>

#include "base/log.h"
#include "base/log_tail.h"
#include "server/server_fixture.h"

namespace headrace::server_watch_test {
namespace {

const Json::Array& data_of(const Json& json) { return at(json, "data").as_array(); }

TEST(Watch, StepsAreThoseOfTheEngineBehindANumber) {
  ServerFixture f;
  EXPECT_TRUE(data_of(f.get("/debug/steps").json()).empty());
  f.model.engine->set_steps(
      {{.number = 7,
        .age = 0.5,
        .seconds = 0.25,
        .prompt_tokens = 64,
        .decode_tokens = 3,
        .sequences = 4},
       {.number = 8, .age = 0.25, .seconds = 0.125, .decode_tokens = 4, .sequences = 4}});
  const Json all = f.get("/debug/steps").json();
  ASSERT_EQ(data_of(all).size(), 2u);
  const Json& first = data_of(all)[0];
  EXPECT_EQ(at(first, "number").as_int(), 7);
  EXPECT_EQ(at(first, "age_seconds").as_double(), 0.5);
  EXPECT_EQ(at(first, "seconds").as_double(), 0.25);
  EXPECT_EQ(at(first, "prompt_tokens").as_int(), 64);
  EXPECT_EQ(at(first, "decode_tokens").as_int(), 3);
  EXPECT_EQ(at(first, "sequences").as_int(), 4);
  EXPECT_EQ(data_of(f.get("/debug/steps?after=7").json()).size(), 1u);
  EXPECT_TRUE(data_of(f.get("/debug/steps?after=8").json()).empty());
  for (const std::string_view after : {"-1", "x", "1e3", "99999999999999999999"}) {
    const TestResponse refused = f.get("/debug/steps?after=" + std::string(after));
    EXPECT_EQ(refused.status, 400) << after;
    EXPECT_NE(refused.body.find("after"), std::string::npos) << refused.body;
  }
}

TEST(Watch, TheLogIsTold) {
  ServerFixture f({}, "hello", {}, false);  // while the model is loaded, too
  testing::internal::CaptureStderr();
  log_line(LogLevel::kError, "a line of \"this\" test");
  testing::internal::GetCapturedStderr();
  const Json lines = f.get("/debug/log").json();
  ASSERT_FALSE(data_of(lines).empty());
  const Json& last = data_of(lines).back();
  EXPECT_NE(at(last, "text").as_string().find(" error a line of \"this\" test"), std::string::npos);
  const std::string after = std::to_string(at(last, "number").as_int());
  EXPECT_TRUE(data_of(f.get("/debug/log?after=" + after).json()).empty());
  EXPECT_EQ(f.get("/debug/log?after=-1").status, 400);
}

TEST(Watch, TheLogIsForTheHolderOfTheOneKey) {
  ServerOptions options;
  options.api_keys = {ApiKey("secret")};
  ServerFixture one({}, "hello", options);
  EXPECT_EQ(one.get("/debug/log").status, 401);
  EXPECT_EQ(one.get("/debug/steps").status, 401);
  EXPECT_EQ(one.get("/debug/log", "X-API-Key: secret\r\n").status, 200);
  options.api_keys.push_back(ApiKey("other"));
  ServerFixture several({}, "hello", options);
  const TestResponse refused = several.get("/debug/log", "X-API-Key: secret\r\n");
  EXPECT_EQ(refused.status, 403);
  EXPECT_NE(refused.body.find("several API keys"), std::string::npos);
  EXPECT_EQ(several.get("/debug/steps", "X-API-Key: secret\r\n").status, 200);
}

TEST(Watch, RequestsUnderWayAreCountedByKey) {
  ServerOptions options;
  ApiKey key("secret");
  key.name = "team";
  options.api_keys = {key, ApiKey("other")};
  ServerFixture f({.running_max = 1}, "", options);
  const auto metrics = [&] { return f.get("/metrics").body; };
  EXPECT_EQ(metrics().find("headrace:requests_open{"), std::string::npos);
  f.model.engine->set_paused(true);
  std::vector<std::unique_ptr<TestClient>> clients;
  constexpr std::string_view kEndless = R"({"prompt":[1,2],"max_tokens":2000,"ignore_eos":true})";
  for (int i = 0; i < 2; ++i) {
    clients.push_back(std::make_unique<TestClient>(f.server->port()));
    clients.back()->send(
        "POST /v1/completions HTTP/1.1\r\nHost: x\r\nX-API-Key: secret\r\nContent-Length: " +
        std::to_string(kEndless.size()) + "\r\n\r\n" + std::string(kEndless));
  }
  const auto counted = [&](std::string_view state) {
    const std::string text = metrics();
    const size_t line =
        text.find("headrace:requests_open{engine=\"0\",key=\"team\",model_name=\"tiny\",state=\"" +
                  std::string(state) + "\"} ");
    if (line == std::string::npos) return -1;
    return std::stoi(text.substr(text.find("} ", line) + 2));
  };
  EXPECT_TRUE(eventually([&] { return counted("running") + counted("waiting") == 2; }));
  EXPECT_EQ(metrics().find("key=\"key-2\",model_name=\"tiny\",state="), std::string::npos);
  f.model.engine->set_paused(false);
  for (auto& client : clients) client->close();
  EXPECT_TRUE(
      eventually([&] { return metrics().find("headrace:requests_open{") == std::string::npos; }));
}

}  // namespace
}  // namespace headrace::server_watch_test
