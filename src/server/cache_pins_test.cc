#include "server/cache_pins.h"

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace headrace::cache_pins_test {
namespace {

std::vector<TokenId> prompt_of(TokenId first, size_t tokens) {
  return std::vector<TokenId>(tokens, first);
}

struct Rig {
  explicit Rig(PinLimits limits) { pins = std::make_shared<CachePins>(limits, clock); }
  VirtualClock clock;
  TestModel model;
  std::shared_ptr<CachePins> pins;
  // A pin that is placed.
  std::string pin(const std::string& owner, const std::vector<TokenId>& prompt,
                  double seconds = 100) {
    const std::string id = pins->reserve(owner, "", prompt, seconds).value_or("");
    pins->place(id, "", prompt);
    return id;
  }
  std::vector<std::string> ids(const std::string& owner) {
    std::vector<std::string> found;
    for (const CachePin& pin : pins->list(owner)) found.push_back(pin.id);
    return found;
  }
};

TEST(CachePins, TheOldestOfAnOwnerGiveWay) {
  Rig rig({.tokens_per_key = 100});
  rig.pins->set_engine(*rig.model.engine);
  const std::string a = rig.pin("x", prompt_of(1, 40)), b = rig.pin("x", prompt_of(2, 40));
  const std::string other = rig.pin("y", prompt_of(3, 90));
  EXPECT_EQ(rig.pins->reserve("x", "", prompt_of(4, 101), 100), std::nullopt);
  EXPECT_EQ(rig.ids("x"), (std::vector<std::string>{a, b}));
  const std::string c = rig.pin("x", prompt_of(5, 30));
  EXPECT_EQ(rig.ids("x"), (std::vector<std::string>{b, c}));
  EXPECT_EQ(rig.ids("y"), std::vector<std::string>{other});
  EXPECT_TRUE(eventually([&] { return rig.model.engine->pinned().size() == 3; }));
  EXPECT_FALSE(rig.pins->remove("x", other));
  EXPECT_TRUE(rig.pins->remove("x", b));
  EXPECT_EQ(rig.model.engine->pinned().size(), 2u);
}

TEST(CachePins, AllTogetherHoldHalfTheCache) {
  Rig rig({.tokens_per_key = 1 << 20, .pins_per_key = 3});
  rig.pins->set_engine(*rig.model.engine);  // of 1,600 tokens
  EXPECT_FALSE(rig.pin("x", prompt_of(1, 700)).empty());
  EXPECT_TRUE(rig.pin("y", prompt_of(2, 200)).empty());
  for (TokenId i = 0; i < 5; ++i) EXPECT_FALSE(rig.pin("z", prompt_of(i, 10)).empty());
  EXPECT_EQ(rig.ids("z").size(), 3u);
}

TEST(CachePins, TimeEndsThem) {
  Rig rig({});
  rig.pins->set_engine(*rig.model.engine);
  const std::string a = rig.pin("x", prompt_of(1, 20), 10), b = rig.pin("x", prompt_of(2, 20), 20);
  EXPECT_EQ(rig.pin("x", prompt_of(1, 20), 30), a);  // the same prompt: longer
  rig.clock.advance_ns(25'000'000'000);
  rig.pins->expire();
  EXPECT_EQ(rig.ids("x"), std::vector<std::string>{a});
  EXPECT_EQ(rig.model.engine->pinned().size(), 1u);
  rig.clock.advance_ns(6'000'000'000);
  EXPECT_TRUE(rig.pins->counts().empty());
  EXPECT_TRUE(rig.model.engine->pinned().empty());
}

TEST(CachePins, AReservationEndsWithItsRequest) {
  Rig rig({});
  EXPECT_EQ(rig.pins->reserve("x", "", prompt_of(1, 20), 10), std::nullopt);  // no engine yet
  rig.pins->set_engine(*rig.model.engine);
  const auto id = rig.pins->reserve("x", "", prompt_of(1, 20), 10);
  rig.pins->give_up(*id);
  EXPECT_TRUE(rig.ids("x").empty());
  rig.pins->place(*id, "", prompt_of(1, 20));
  EXPECT_TRUE(rig.model.engine->pinned().empty());
  const std::string placed = rig.pin("x", prompt_of(2, 20));
  rig.pins->give_up(placed);
  EXPECT_EQ(rig.ids("x"), std::vector<std::string>{placed});
}

TEST(CachePins, OverHttp) {
  ServerOptions options;
  options.api_keys = {"one", "two"};
  ServerFixture f({}, "hello", options);
  constexpr std::string_view kOne = "Authorization: Bearer one\r\n";
  constexpr std::string_view kTwo = "Authorization: Bearer two\r\n";
  const auto chat = [&](std::string_view field) {
    return f.post(kChatPath,
                  fmt::format(R"({{"messages":[{{"role":"user","content":"hi"}}],{}}})", field),
                  kOne);
  };
  const TestResponse pinned = chat(R"("cache_pin":600)");
  EXPECT_EQ(pinned.status, 200);
  const std::string id = pinned.headers.at("x-cache-pin");
  EXPECT_EQ(chat(R"("prompt_cache_retention":"24h","stream":true)").headers.at("x-cache-pin"), id);
  EXPECT_EQ(chat(R"("prompt_cache_retention":"in_memory")").headers.count("x-cache-pin"), 0u);
  EXPECT_EQ(chat(R"("prompt_cache_retention":"1h")").error_param(), "prompt_cache_retention");
  EXPECT_EQ(chat(R"("cache_pin":86401)").error_param(), "cache_pin");
  ASSERT_TRUE(eventually([&] {
    const Json list = f.get("/v1/cache/pins", kOne).json();
    const Json::Array& pins = at(list, "data").as_array();
    return pins.size() == 1 && at(pins[0], "tokens").as_int() > 0;
  }));
  const std::string metrics = f.get("/metrics").body;
  EXPECT_NE(metrics.find("headrace:cache_pins{engine=\"0\",key=\"key-"), std::string::npos);
  EXPECT_TRUE(at(f.get("/v1/cache/pins", kTwo).json(), "data").as_array().empty());
  const auto remove = [&](std::string_view key) {
    TestClient client(f.server->port());
    client.send(fmt::format("DELETE /v1/cache/pins/{} HTTP/1.1\r\nHost: x\r\n{}\r\n", id, key));
    return client.read_response()->status;
  };
  EXPECT_EQ(remove(kTwo), 404);
  EXPECT_EQ(remove(kOne), 200);
  EXPECT_EQ(remove(kOne), 404);
  EXPECT_TRUE(f.model.engine->pinned().empty());
}

// What runs needs its pages, and a pin is a promise.
TEST(FlushCache, WaitsForRequestsAndSparesPins) {
  ServerFixture f({.step_seconds = 0.005}, "");
  const auto flush = [&] { return TestClient(f.server->port()).post_text("/flush_cache", ""); };
  EXPECT_EQ(flush()->status, 200);
  EXPECT_EQ(f.model.engine->times_cleared(), 1);

  TestClient brief(f.server->port());
  const std::string body = R"({"prompt":"a","max_tokens":40})";  // for a fifth of a second
  brief.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                         kCompletions, body.size(), body));
  ASSERT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 1; }));
  EXPECT_EQ(flush()->status, 200);
  EXPECT_EQ(brief.read_response()->status, 200);

  f.model.engine->set_paused(true);
  TestClient endless(f.server->port());
  endless.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                           kCompletions, body.size(), body));
  ASSERT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 1; }));
  const auto busy = flush();
  EXPECT_EQ(busy->status, 400);
  EXPECT_NE(busy->body.find("while requests run"), std::string::npos) << busy->body;
  f.model.engine->set_paused(false);
  EXPECT_EQ(endless.read_response()->status, 200);

  f.post(kCompletions, R"({"prompt":"a","max_tokens":1,"cache_pin":60})");
  const auto pinned = flush();
  EXPECT_EQ(pinned->status, 400);
  EXPECT_NE(pinned->body.find("/v1/cache/pins"), std::string::npos) << pinned->body;
  EXPECT_EQ(f.model.engine->times_cleared(), 2);
}

}  // namespace
}  // namespace headrace::cache_pins_test
