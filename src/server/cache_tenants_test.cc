// Whether one API key can see, by cached_tokens or by the time of an answer, which prompts another
// has sent. The server is whole; its engine is the oracle's, which sleeps for each token that it
// computes.
#include <gtest/gtest.h>

#include <algorithm>
#include <chrono>
#include <cmath>
#include <memory>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>
#include <fmt/ranges.h>

#include "base/rng.h"
#include "engine/oracle_runner_fixture.h"
#include "server/server_fixture.h"

namespace headrace::cache_tenants_test {
namespace {

constexpr OracleModel kModel{.vocab_size = 1000, .end_id = 0, .end_probability = 0.02};
constexpr int kPromptTokens = 80;  // five pages
#ifdef HEADRACE_SANITIZED
constexpr int kTries = 200;  // a leak is found by a tenth of them as well
#else
constexpr int kTries = 2000;
#endif
// By chance alone a difference is as clear as this once in a million runs.
constexpr double kClear = 1e-6;

// Mann and Whitney's rank test: how likely two samples of one distribution differ as much in rank
// as these (both sides, normal approximation: fine from some twenty values on).
double rank_test(const std::vector<double>& a, const std::vector<double>& b) {
  std::vector<std::pair<double, bool>> all;  // with: is of a
  for (const double value : a) all.emplace_back(value, true);
  for (const double value : b) all.emplace_back(value, false);
  std::sort(all.begin(), all.end());
  double rank_sum = 0;  // of a
  for (size_t i = 0; i < all.size(); ++i) {
    if (all[i].second) rank_sum += static_cast<double>(i + 1);
  }
  const auto n = static_cast<double>(a.size()), m = static_cast<double>(b.size());
  const double u = rank_sum - n * (n + 1) / 2;
  const double z = (u - n * m / 2) / std::sqrt(n * m * (n + m + 1) / 12);
  return std::erfc(std::abs(z) / std::sqrt(2.0));
}

TEST(RankTest, IsWhatTheTablesSay) {
  // U = 0 of 10 and 10: z = 3.7796, p = 0.000157.
  std::vector<double> low, high, even, odd;
  for (int i = 0; i < 10; ++i) {
    low.push_back(i);
    high.push_back(100 + i);
    even.push_back(2 * i + (i % 2));
    odd.push_back(2 * i + 1 - (i % 2));
  }
  EXPECT_NEAR(rank_test(low, high), 0.000157, 1e-6);
  EXPECT_GT(rank_test(even, odd), 0.9);
}

struct TenantServer {
  explicit TenantServer(std::vector<ApiKey> keys) {
    SchedulerOptions scheduler;
    scheduler.max_num_seqs = 8;
    scheduler.max_num_batched_tokens = 256;
    scheduler.max_model_len = 256;
    scheduler.max_queued_requests = 16;
    scheduler.groups = {{.layers = {0}, .block_tokens = 16, .block_bytes = 1}};
    scheduler.block_count = 4096;
    scheduler.end_ids = {kModel.end_id};
    engine = Engine::create({.scheduler = scheduler, .vocab_size = kModel.vocab_size},
                            std::make_unique<OracleRunner>(kModel, scheduler, controls))
                 .value();
    ServerOptions options;
    options.port = 0;
    options.handle_signals = false;
    options.allowed_hosts = {"x"};
    options.api_keys = std::move(keys);
    server = Server::create(std::move(options)).value();
    CHECK(server->start().ok());
    ServedModel model;
    model.engine = engine.get();
    model.names = {"oracle"};
    model.max_model_len = 256;
    CHECK(server->set_ready(model).ok());
  }
  std::shared_ptr<OracleControls> controls = std::make_shared<OracleControls>();
  std::unique_ptr<Engine> engine;
  std::unique_ptr<Server> server;
};

// A client that keeps its connection. `key` may be empty.
class Tenant {
 public:
  Tenant(TenantServer& server, std::string_view key)
      : port_(server.server->port()),
        client_(std::make_unique<TestClient>(port_)),
        headers_(key.empty() ? "" : fmt::format("Authorization: Bearer {}\r\n", key)) {}

  struct Seen {
    int64_t cached_tokens = 0;
    double seconds = 0;
  };
  Seen send(const std::vector<TokenId>& prompt, std::string_view more = "") {
    const std::string body =
        fmt::format(R"({{"prompt":[{}],"max_tokens":1{}}})", fmt::join(prompt, ","), more);
    const auto began = std::chrono::steady_clock::now();
    const auto response = client_->post_text(kCompletions, body, headers_);
    const std::chrono::duration<double> elapsed = std::chrono::steady_clock::now() - began;
    if (!response) {  // the server ends a connection that was silent while the other was probed
      client_ = std::make_unique<TestClient>(port_);
      return send(prompt, more);
    }
    CHECK(response->status == 200);
    const Json json = response->json();
    const Json& details = at(at(json, "usage"), "prompt_tokens_details");
    return {at(details, "cached_tokens").as_int(), elapsed.count()};
  }

 private:
  const uint16_t port_;
  std::unique_ptr<TestClient> client_;
  const std::string headers_;
};

std::vector<TokenId> random_prompt(Rng& rng) {
  std::vector<TokenId> prompt(kPromptTokens);
  for (TokenId& token : prompt) token = static_cast<TokenId>(1 + rng.below(999));
  return prompt;
}

struct Probe {
  double p = 1;                   // of the times
  int64_t cached_tokens_max = 0;  // of any answer
};

// One sends a prompt, another asks for the same prompt or, by a coin, for another.
Probe probe(Tenant& victim, Tenant& spy, uint64_t seed) {
  Rng rng(seed);
  std::vector<double> same, other;
  Probe result;
  for (int i = 0; i < kTries; ++i) {
    const std::vector<TokenId> sent = random_prompt(rng), unsent = random_prompt(rng);
    const bool hit = rng.below(2) == 0;
    victim.send(sent);
    const Tenant::Seen seen = spy.send(hit ? sent : unsent);
    result.cached_tokens_max = std::max(result.cached_tokens_max, seen.cached_tokens);
    (hit ? same : other).push_back(seen.seconds);
  }
  result.p = rank_test(same, other);
  return result;
}

TEST(CacheTenants, AnotherKeysPromptsAreNotSeen) {
  TenantServer server({"victim", "spy"});
  server.controls->token_micros = 2;
  Tenant victim(server, "victim"), spy(server, "spy"), accomplice(server, "victim");
  const Probe leak = probe(victim, accomplice, 1);  // planted: they share a key
  fmt::print("the same key: p = {:.3g}, {} tokens cached\n", leak.p, leak.cached_tokens_max);
  EXPECT_LT(leak.p, kClear) << "the test cannot see a leak";
  EXPECT_GE(leak.cached_tokens_max, 64);
  for (uint64_t seed = 2; seed < 5; ++seed) {
    const Probe found = probe(victim, spy, seed);
    fmt::print("another key: p = {:.3g}, {} tokens cached\n", found.p, found.cached_tokens_max);
    EXPECT_GT(found.p, kClear);
    EXPECT_EQ(found.cached_tokens_max, 0);
  }
}

TEST(CacheTenants, KeysOfAGroupShareAndSaltsStillPart) {
  ApiKey a("a"), b("b"), c("c");
  a.group = b.group = "team";
  c.name = "team";
  TenantServer server({a, b, c});
  Tenant first(server, "a"), second(server, "b"), outsider(server, "c");
  Rng rng(9);
  const std::vector<TokenId> prompt = random_prompt(rng);
  EXPECT_EQ(first.send(prompt).cached_tokens, 0);
  EXPECT_GE(second.send(prompt).cached_tokens, 64);
  EXPECT_EQ(second.send(prompt, R"(,"cache_salt":"mine")").cached_tokens, 0);
  for (const std::string_view salt : {"", "group/team", "group/team/", "/", "team"}) {
    EXPECT_EQ(outsider.send(prompt, fmt::format(R"(,"cache_salt":"{}")", salt)).cached_tokens, 0)
        << salt;
  }
}

TEST(CacheTenants, APinnedPromptIsItsKeysAlone) {
  TenantServer server({"victim", "spy"});
  Tenant victim(server, "victim"), spy(server, "spy");
  Rng rng(11);
  const std::vector<TokenId> prompt = random_prompt(rng);
  victim.send(prompt, R"(,"cache_pin":60)");
  EXPECT_EQ(spy.send(prompt, R"(,"cache_pin":60)").cached_tokens, 0);
  EXPECT_GE(victim.send(prompt).cached_tokens, 64);
}

TEST(CacheTenants, RequestsWithoutKeysShare) {
  TenantServer server({});
  Tenant first(server, ""), second(server, "");
  Rng rng(10);
  const std::vector<TokenId> prompt = random_prompt(rng);
  EXPECT_EQ(first.send(prompt).cached_tokens, 0);
  EXPECT_GE(second.send(prompt).cached_tokens, 64);
}

}  // namespace
}  // namespace headrace::cache_tenants_test
