#include "server/key_quota.h"

#include <unistd.h>

#include <filesystem>
#include <fstream>
#include <map>
#include <set>

#include <fmt/format.h>
#include <gtest/gtest.h>

#include "base/rng.h"
#include "server/server_fixture.h"

namespace headrace::key_quota_test {
namespace {

constexpr int64_t kSecond = 1'000'000'000;

std::map<std::string, std::string> headers_of(const KeyQuota& quota) {
  std::map<std::string, std::string> found;
  for (const HttpHeader& header : quota.headers()) found[header.name] = header.value;
  return found;
}

TEST(KeyQuota, RequestsOfAMinute) {
  VirtualClock clock;
  KeyQuota quota({.requests_per_minute = 3}, clock);
  for (int i = 0; i < 3; ++i) EXPECT_TRUE(quota.admit().lease) << i;
  const auto refused = quota.admit();
  ASSERT_TRUE(refused.refusal);
  EXPECT_EQ(refused.refusal->kind, QuotaKind::kRequests);
  EXPECT_DOUBLE_EQ(*refused.refusal->retry_seconds, 20);  // one of three a minute
  clock.advance_ns(20 * kSecond);
  EXPECT_TRUE(quota.admit().lease);
  EXPECT_TRUE(quota.admit().refusal);
  EXPECT_EQ(quota.refusals(QuotaKind::kRequests), 2u);
  const auto headers = headers_of(quota);
  EXPECT_EQ(headers.at("x-ratelimit-limit-requests"), "3");
  EXPECT_EQ(headers.at("x-ratelimit-remaining-requests"), "0");
  EXPECT_EQ(headers.at("x-ratelimit-reset-requests"), "1m0s");
  EXPECT_EQ(headers.count("x-ratelimit-limit-tokens"), 0u);
}

TEST(KeyQuota, TokensThatWereNotSpentComeBack) {
  VirtualClock clock;
  KeyQuota quota({.tokens_per_minute = 600}, clock);
  {
    const auto first = quota.admit();
    ASSERT_FALSE(quota.take_tokens(*first.lease, 100, 400));
    EXPECT_EQ(headers_of(quota).at("x-ratelimit-remaining-tokens"), "100");
    const auto second = quota.admit();
    const auto refusal = quota.take_tokens(*second.lease, 100, 50);
    ASSERT_TRUE(refusal);
    EXPECT_DOUBLE_EQ(*refusal->retry_seconds, 5);  // 50 at 10 a second
    first.lease->spend(30);
  }
  EXPECT_EQ(headers_of(quota).at("x-ratelimit-remaining-tokens"), "470");
  EXPECT_EQ(headers_of(quota).at("x-ratelimit-reset-tokens"), "13s");
}

TEST(KeyQuota, TokensThatNobodyNamedAreOwed) {
  VirtualClock clock;
  KeyQuota quota({.tokens_per_minute = 600}, clock);
  {
    const auto admission = quota.admit();
    ASSERT_FALSE(quota.take_tokens(*admission.lease, 100, 0));
    admission.lease->spend(700);
  }
  const auto next = quota.admit();
  const auto refusal = quota.take_tokens(*next.lease, 100, 0);
  ASSERT_TRUE(refusal);
  EXPECT_DOUBLE_EQ(*refusal->retry_seconds, 30);  // 200 owed and 100 wanted, at 10 a second
}

TEST(KeyQuota, WhatNeverFitsIsNotPutOff) {
  VirtualClock clock;
  KeyQuota quota({.tokens_per_minute = 600}, clock);
  const auto admission = quota.admit();
  const auto refusal = quota.take_tokens(*admission.lease, 100, 501);
  ASSERT_TRUE(refusal);
  EXPECT_FALSE(refusal->retry_seconds);
  EXPECT_EQ(quota_response(*refusal, quota).status, 400);
}

TEST(KeyQuota, RequestsAtATime) {
  VirtualClock clock;
  KeyQuota quota({.concurrent_requests = 2}, clock);
  auto first = quota.admit(), second = quota.admit();
  EXPECT_EQ(quota.admit().refusal->kind, QuotaKind::kConcurrency);
  first.lease.reset();
  EXPECT_TRUE(quota.admit().lease);
}

// Whoever comes again when told to is admitted, and no window of time gives more than it may.
TEST(KeyQuota, RetryAfterIsTrueAndRatesHold) {
  VirtualClock clock;
  Rng rng(11);
  KeyQuota quota({.requests_per_minute = 30, .tokens_per_minute = 3000}, clock);
  int64_t admitted = 0, tokens = 0;
  while (clock.now_seconds() < 3600) {
    const auto admission = quota.admit();
    if (admission.refusal) {
      clock.advance_ns(static_cast<int64_t>(*admission.refusal->retry_seconds * 1e9) + 1);
      continue;
    }
    ++admitted;
    const auto prompt = static_cast<int64_t>(1 + rng.below(300));
    if (auto refusal = quota.take_tokens(*admission.lease, prompt, 100)) {
      clock.advance_ns(static_cast<int64_t>(*refusal->retry_seconds * 1e9) + 1);
      refusal = quota.take_tokens(*admission.lease, prompt, 100);
      ASSERT_FALSE(refusal) << refusal->message;
    }
    const auto spent = static_cast<int64_t>(rng.below(101));
    admission.lease->spend(spent);
    tokens += prompt + spent;
  }
  const double minutes = 1 + clock.now_seconds() / 60;  // the first one's worth was there
  EXPECT_LE(static_cast<double>(admitted), 30 * minutes);
  EXPECT_LE(static_cast<double>(tokens), 3000 * minutes);
  EXPECT_GE(std::max(admitted * 100, tokens), 3000 * 55);  // one of the two is used up
}

TEST(ApiKeyFile, LinesAreKeysOrObjects) {
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("headrace_keys_{}", ::getpid());
  const auto read = [&](std::string_view text) {
    std::ofstream(path) << text;
    return read_api_key_file(path, {.requests_per_minute = 5});
  };
  const auto keys = read(
      "# a comment\n\nplain \n{\"key\":\"k2\",\"name\":\"team\",\"requests_per_minute\":7,"
      "\"tokens_per_minute\":8,\"concurrent_requests\":9}\n");
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  ASSERT_EQ(keys->size(), 2u);
  EXPECT_EQ((*keys)[0].secret, "plain");
  EXPECT_EQ((*keys)[0].limits, (KeyLimits{.requests_per_minute = 5}));
  EXPECT_EQ((*keys)[1].name, "team");
  EXPECT_EQ((*keys)[1].limits, (KeyLimits{7, 8, 9}));
  const std::pair<std::string_view, std::string_view> bad[] = {
      {"", "holds no API key"},
      {"a\n{\"name\":\"x\"}\n", "line 2: key is missing"},
      {"{\"key\":\"secret\",\"rpm\":1}\n", "line 1: rpm is not known"},
      {"{\"key\":\"secret\",\"tokens_per_minute\":-1}\n", "line 1: tokens_per_minute must be"},
      {"{\"key\":\"secret\"\n", "line 1: is neither"}};
  for (const auto& [text, said] : bad) {
    const auto refused = read(text);
    ASSERT_FALSE(refused.ok()) << text;
    EXPECT_NE(refused.status().message().find(said), std::string::npos)
        << refused.status().message();
    EXPECT_EQ(refused.status().message().find("secret"), std::string::npos);
  }
  std::filesystem::remove(path);
}

TEST(ApiKeyFile, MayNotBeWrittenByAnybody) {
  const std::string path =
      std::filesystem::temp_directory_path() / fmt::format("headrace_key_mode_{}", ::getpid());
  std::ofstream(path) << R"({"key":"k","group":"team"})";
  std::filesystem::permissions(path, std::filesystem::perms(0600));
  const auto keys = read_api_key_file(path, {});
  ASSERT_TRUE(keys.ok()) << keys.status().message();
  EXPECT_EQ((*keys)[0].group, "team");
  std::filesystem::permissions(path, std::filesystem::perms(0644));  // as mounted secrets are
  EXPECT_TRUE(read_api_key_file(path, {}).ok());
  std::filesystem::permissions(path, std::filesystem::perms(0602));
  const auto refused = read_api_key_file(path, {});
  ASSERT_FALSE(refused.ok());
  EXPECT_NE(refused.status().message().find("chmod 600"), std::string::npos);
  std::filesystem::remove(path);
}

TEST(ApiKeys, NamesAreUniqueAndHideTheKey) {
  const auto keys = ApiKeys::create({"one", "two", "one"});
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->size(), 2u);
  EXPECT_NE(keys->name(0), keys->name(1));
  EXPECT_EQ(keys->find_name(keys->name(1)), 1);
  EXPECT_EQ(keys->name(0).find("one"), std::string::npos);
  EXPECT_EQ(keys->name(0), ApiKeys::create({"one"})->name(0)) << "files are kept under it";
  ApiKey a("a"), b("b");
  a.name = b.name = "same";
  EXPECT_FALSE(ApiKeys::create({a, b}).ok());
  b.name = "../up";
  EXPECT_FALSE(ApiKeys::create({b}).ok());
}

// /metrics is open. A name made of the key would tell who guesses it that the guess is right, and
// the same key on two servers that it is the same.
TEST(ApiKeys, LabelsSayNothingOfTheKey) {
  ApiKey named("three");
  named.name = "key-2";
  const auto keys = ApiKeys::create({"one", "two", named});
  ASSERT_TRUE(keys.ok());
  const auto others = ApiKeys::create({"other", "another", named});
  ASSERT_TRUE(others.ok());
  for (const int place : {0, 1, 2}) EXPECT_EQ(keys->label(place), others->label(place));
  EXPECT_EQ(keys->label(0), "key-1");
  EXPECT_NE(keys->label(1), keys->label(2));
  EXPECT_EQ(keys->label(2), "key-2");
}

TEST(ApiKeys, AGroupSharesACacheAndNobodyElse) {
  ApiKey a("a"), b("b"), c("c"), d("d");
  a.group = b.group = c.name = "team";
  const auto keys = ApiKeys::create({a, b, c, d});
  ASSERT_TRUE(keys.ok());
  EXPECT_EQ(keys->cache_domain(0), keys->cache_domain(1));
  const std::set<std::string> domains = {keys->cache_domain(-1), keys->cache_domain(0),
                                         keys->cache_domain(2), keys->cache_domain(3)};
  EXPECT_EQ(domains.size(), 4u) << "a group has the name of a key";
  a.group = "../up";
  EXPECT_FALSE(ApiKeys::create({a}).ok());
}

// --- Over HTTP -----------------------------------------------------------------------------------

ServerOptions with_limits(KeyLimits limits) {
  ServerOptions options;
  ApiKey key("limited");
  key.name = "team";
  key.limits = limits;
  options.api_keys = {key, "free"};
  return options;
}
constexpr std::string_view kLimited = "Authorization: Bearer limited\r\n";

TEST(Quotas, AKeyOverItsRateIsToldWhenToComeAgain) {
  ServerFixture f({}, "hello", with_limits({.requests_per_minute = 2}));
  const TestResponse first = f.post(kChatPath, kChat, kLimited);
  EXPECT_EQ(first.status, 200);
  EXPECT_EQ(first.headers.at("x-ratelimit-remaining-requests"), "1");
  const TestResponse stream = f.post(kChatPath, kChatStream, kLimited);
  EXPECT_EQ(stream.headers.at("x-ratelimit-limit-requests"), "2");
  const TestResponse refused = f.post(kChatPath, kChat, kLimited);
  EXPECT_EQ(refused.status, 429);
  EXPECT_EQ(refused.headers.at("x-ratelimit-remaining-requests"), "0");
  const int seconds = std::stoi(refused.headers.at("retry-after"));
  EXPECT_TRUE(29 <= seconds && seconds <= 30) << seconds;
  EXPECT_LE(std::stoi(refused.headers.at("retry-after-ms")), 30'000);
  EXPECT_EQ(f.get("/v1/models", kLimited).status, 200);  // not a request to the model
  const TestResponse other = f.post(kChatPath, kChat, "Authorization: Bearer free\r\n");
  EXPECT_EQ(other.status, 200);
  EXPECT_EQ(other.headers.count("x-ratelimit-limit-requests"), 0u);
  const std::string metrics = f.get("/metrics").body;
  EXPECT_NE(metrics.find(R"(key="team",limit="requests",model_name="tiny"} 1)"), std::string::npos);
  EXPECT_EQ(metrics.find("limited"), std::string::npos);
}

// Also an answer that is an error says what is left; what is pinned, only one that pins.
TEST(Quotas, RefusalsSayWhatIsLeft) {
  ServerOptions options = with_limits({.requests_per_minute = 10});
  options.requests.queue_seconds_max = 0.05;
  ServerFixture f({.running_max = 1, .queued_max = 1}, "hello", options);
  constexpr std::string_view kPinned = R"({"prompt":"hello there","max_tokens":5,"cache_pin":60})";
  const auto told = [&](const TestResponse& response, int status) {
    EXPECT_EQ(response.status, status) << response.body;
    EXPECT_TRUE(response.headers.contains("x-ratelimit-remaining-requests")) << response.body;
    return response.headers.contains("x-cache-pin");
  };
  EXPECT_FALSE(told(f.post(kCompletions, "{}", kLimited), 400));
  EXPECT_TRUE(told(f.post(kCompletions, kPinned, kLimited), 200));
  f.model.engine->set_paused(true);
  TestClient running(f.server->port());
  running.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}",
                           kChatPath, "Authorization: Bearer free\r\n", kChat.size(), kChat));
  ASSERT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 1; }));
  EXPECT_FALSE(told(f.post(kCompletions, kPinned, kLimited), 503));  // it waited too long
  constexpr std::string_view kFlex = R"({"prompt":"a","max_tokens":1,"service_tier":"flex"})";
  TestClient waiting(f.server->port());
  waiting.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}",
                           kCompletions, "Authorization: Bearer free\r\n", kFlex.size(), kFlex));
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 4; }));
  EXPECT_FALSE(told(f.post(kCompletions, kPinned, kLimited), 429));  // the queue is full
  f.model.engine->set_paused(false);
}

TEST(Quotas, LengthsOfEveryProtocolAreTaken) {
  ServerFixture f({}, "hello", with_limits({.tokens_per_minute = 100}));
  const std::pair<std::string_view, std::string_view> bodies[] = {
      {"/v1/completions", R"({"prompt":"a","max_tokens":1000})"},
      {"/completion", R"({"prompt":"a","n_predict":1000})"},
      {"/api/generate", R"({"model":"tiny","prompt":"a","options":{"num_predict":1000}})"},
      {"/api/generate",
       R"({"model":"tiny","prompt":"a","raw":true,"options":{"num_predict":1000}})"},
      {"/api/chat",
       R"({"model":"tiny","messages":[{"role":"user","content":"a"}],"options":{"num_predict":1000}})"},
      {"/generate", R"({"text":"a","sampling_params":{"max_new_tokens":1000}})"},
      {"/generate_stream", R"({"inputs":"a","parameters":{"max_new_tokens":1000}})"}};
  for (const auto& [path, body] : bodies) {
    const TestResponse refused = f.post(path, body, kLimited);
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_NE(refused.body.find("may take 10"), refused.body.npos) << path << refused.body;
  }
  EXPECT_EQ(f.post("/completion", R"({"prompt":"a"})", kLimited).status, 200);  // it names none
}

TEST(Quotas, MetricsNameNoKeyThatHasNoName) {
  ServerOptions options = with_limits({});
  options.api_keys = {ApiKey("secret")};
  options.api_keys[0].limits.requests_per_minute = 2;
  const std::string owner = ApiKeys::create(options.api_keys)->name(0);
  ServerFixture f({}, "hello", options);
  const std::string pinned =
      R"({"messages":[{"role":"user","content":"hello there"}],"max_tokens":5,"cache_pin":60})";
  ASSERT_EQ(f.post(kChatPath, pinned, "X-API-Key: secret\r\n").status, 200);
  const std::string metrics = f.get("/metrics").body;
  EXPECT_NE(metrics.find(R"(headrace:quota_refusals_total{engine="0",key="key-1")"), metrics.npos);
  EXPECT_NE(metrics.find(R"(headrace:cache_pins{engine="0",key="key-1")"), metrics.npos);
  EXPECT_EQ(metrics.find(owner), metrics.npos) << owner;
}

TEST(Quotas, PlacesComeFreeWhateverEndsTheRequest) {
  ServerFixture f({.step_seconds = 0.005}, "", with_limits({.concurrent_requests = 1}));
  constexpr std::string_view kLong =
      R"({"messages":[{"role":"user","content":"hi"}],"max_tokens":2000,"stream":true})";
  const auto open = [&] {
    auto client = std::make_unique<TestClient>(f.server->port());
    client->send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}",
                             kChatPath, kLimited, kLong.size(), kLong));
    EXPECT_NE(client->receive(12).find("200"), std::string::npos);
    return client;
  };
  auto client = open();
  EXPECT_EQ(f.post(kChatPath, kChat, kLimited).status, 429);
  EXPECT_EQ(f.post(kChatPath, "{}", kLimited).status, 429);
  client->close();
  EXPECT_TRUE(eventually([&] { return f.post(kChatPath, "{}", kLimited).status == 400; }));
  EXPECT_EQ(f.post(kChatPath, kChat, kLimited).status, 200);  // the refused one left no place taken
  f.model.engine->fail_next_emission();
  EXPECT_EQ(f.post(kChatPath, kChat, kLimited).status, 500);
  EXPECT_EQ(f.post(kChatPath, kChat, kLimited).status, 200);
}

}  // namespace
}  // namespace headrace::key_quota_test
