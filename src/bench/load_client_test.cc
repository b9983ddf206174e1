#include "bench/load_client.h"

#include <gtest/gtest.h>
#include <netinet/in.h>
#include <sys/socket.h>
#include <unistd.h>

#include <thread>

#include "bench/load_report.h"
#include "server/server_fixture.h"

namespace headrace::load_client_test {
namespace {

LoadClientOptions client_of(ServerFixture& fixture) {
  return {.port = fixture.server->port(), .seconds_max = 30};
}

std::string body(int max_tokens, bool stream) {
  return std::string(R"({"prompt":[1,2,3],"ignore_eos":true,"max_tokens":)") +
         std::to_string(max_tokens) +
         (stream ? R"(,"stream":true,"stream_options":{"include_usage":true}})" : "}");
}

TEST(LoadClient, EveryAnswerIsTimedAndCounted) {
  for (const bool stream : {true, false}) {
    ServerFixture server({.step_seconds = 0.001}, "");
    const std::vector<LoadItem> items(9, {.body = body(20, stream)});
    LoadClientOptions options = client_of(server);
    options.concurrency_max = 4;
    options.threads = 3;
    const auto outcomes = run_load(options, items);
    ASSERT_TRUE(outcomes.ok());
    for (const LoadOutcome& outcome : *outcomes) {
      EXPECT_EQ(outcome.error, "");
      EXPECT_EQ(outcome.prompt_tokens, 3);
      EXPECT_EQ(outcome.output_tokens, 20);
      EXPECT_GE(outcome.first_token, outcome.sent);
      EXPECT_GE(outcome.ended, outcome.last_token);
      EXPECT_EQ(!outcome.gaps.empty(), stream);
    }
    const LoadReport report = summarise(*outcomes);
    EXPECT_EQ(report.completed, 9);
    EXPECT_EQ(report.output_tokens, 180);
    EXPECT_GT(report.seconds, 0);
    EXPECT_GE(report.ttft_ms.p99, report.ttft_ms.p50);
  }
}

TEST(LoadClient, TheBoundOnConcurrencyHolds) {
  ServerFixture server({.running_max = 1, .queued_max = 1}, "");
  const std::vector<LoadItem> items(12, {.body = body(5, true)});
  LoadClientOptions options = client_of(server);
  options.concurrency_max = 2;  // one more would be told 429
  const auto outcomes = run_load(options, items);
  ASSERT_TRUE(outcomes.ok());
  for (const LoadOutcome& outcome : *outcomes) EXPECT_EQ(outcome.error, "");
}

TEST(LoadClient, ItemsAreSentAtTheirTime) {
  ServerFixture server({}, "");
  std::vector<LoadItem> items;
  for (int i = 0; i < 4; ++i) items.push_back({.at_seconds = 0.05 * i, .body = body(2, true)});
  const auto outcomes = run_load(client_of(server), items);
  ASSERT_TRUE(outcomes.ok());
  for (size_t i = 0; i < items.size(); ++i) EXPECT_GE((*outcomes)[i].sent, items[i].at_seconds);
}

TEST(LoadClient, RefusalsAndSilenceAreFailures) {
  ServerFixture server({.running_max = 1}, "");
  const std::vector<LoadItem> bad{{.body = "{}"}};
  const auto refused = run_load(client_of(server), bad);
  ASSERT_TRUE(refused.ok());
  EXPECT_TRUE(refused->front().error.starts_with("400: ")) << refused->front().error;

  server.model.engine->set_paused(true);
  LoadClientOptions impatient = client_of(server);
  impatient.seconds_max = 0.1;
  impatient.concurrency_max = 1;
  const std::vector<LoadItem> items(2, {.body = body(5, true)});
  const auto silent = run_load(impatient, items);
  ASSERT_TRUE(silent.ok());
  EXPECT_EQ((*silent)[0].error, "not answered in time");
  EXPECT_EQ((*silent)[1].error, "never sent");
  const LoadReport report = summarise(*silent);
  EXPECT_EQ(report.failed, 2);
  EXPECT_EQ(report.first_error, "not answered in time");
}

TEST(LoadClient, RefusalsForLoadAreCountedByThemselves) {
  ServerFixture server({.running_max = 1, .queued_max = 1, .step_seconds = 0.002}, "");
  const std::vector<LoadItem> items(8, {.body = body(50, true)});
  const auto outcomes = run_load(client_of(server), items);
  ASSERT_TRUE(outcomes.ok());
  const LoadReport report = summarise(*outcomes);
  EXPECT_EQ(report.completed, 2);
  EXPECT_EQ(report.refused, 6);
  EXPECT_EQ(report.failed, 0);
  EXPECT_EQ(report.retry_after_s.max, 1);  // what the fake engine says
  EXPECT_GT(report.refusal_ms.p50, 0);
  EXPECT_LT(report.refusal_ms.max, report.e2el_ms.max);
}

TEST(LoadReport, CountsWhatKeptItsTargets) {
  const auto answered = [](double first, double last, int64_t tokens) {
    return LoadOutcome{.sent = 1,
                       .first_token = 1 + first,
                       .last_token = 1 + last,
                       .ended = 1 + last,
                       .output_tokens = tokens};
  };
  // 100 ms to the first token and 10 a later one; 400 and 50; 100 and none later; refused.
  const std::vector<LoadOutcome> outcomes = {answered(0.1, 0.2, 11),
                                             answered(0.4, 0.9, 11),
                                             answered(0.1, 0.1, 1),
                                             {.ended = 1, .error = "429: busy", .status = 429}};
  LatencyTargets targets;
  EXPECT_FALSE(targets.any());
  EXPECT_EQ(count_in_time(outcomes, targets), 3);
  ASSERT_TRUE(parse_latency_target("ttft:500", targets).ok());
  EXPECT_EQ(count_in_time(outcomes, targets), 3);
  ASSERT_TRUE(parse_latency_target("tpot:30", targets).ok());
  EXPECT_EQ(count_in_time(outcomes, targets), 2);
  ASSERT_TRUE(parse_latency_target("e2el:150", targets).ok());
  EXPECT_EQ(count_in_time(outcomes, targets), 1);
  EXPECT_TRUE(targets.any());
  for (const char* bad : {"", "ttft", "ttft:", "ttft:x", "ttft:5x", "ttft:0", "ttft:-1", "itl:5"}) {
    const Status status = parse_latency_target(bad, targets);
    EXPECT_FALSE(status.ok()) << bad;
    EXPECT_NE(status.message().find("as ttft:500"), std::string::npos) << bad;
  }
}

// 1 to 1,000: one in a thousand is above the 99.9th percentile.
TEST(LoadReport, Percentiles) {
  std::vector<double> values;
  for (int i = 1000; i >= 1; --i) values.push_back(i);
  const Percentiles percentiles = percentiles_of(values);
  EXPECT_EQ(percentiles.p50, 500);
  EXPECT_EQ(percentiles.p99, 990);
  EXPECT_EQ(percentiles.p999, 999);
  EXPECT_EQ(percentiles.max, 1000);
}

TEST(LoadClient, NoServerIsAFailureAndNotAnEnd) {
  uint16_t port = 0;
  {
    ServerFixture server({}, "");
    port = server.server->port();
  }
  const std::vector<LoadItem> items(3, {.body = body(5, true)});
  const auto outcomes = run_load({.port = port}, items);
  ASSERT_TRUE(outcomes.ok());
  for (const LoadOutcome& outcome : *outcomes) EXPECT_FALSE(outcome.ok());
  EXPECT_FALSE(fetch({.port = port}, "/health").ok());
  EXPECT_FALSE(run_load({.host = "not an address"}, items).ok());
}

// Answers so many requests, each up to the connection's end.
class ClosingServer {
 public:
  ClosingServer(std::string answer, int requests) {
    listener_ = ::socket(AF_INET, SOCK_STREAM, 0);
    sockaddr_in address{};
    address.sin_family = AF_INET;
    address.sin_addr.s_addr = htonl(INADDR_LOOPBACK);
    EXPECT_EQ(::bind(listener_, reinterpret_cast<sockaddr*>(&address), sizeof address), 0);
    EXPECT_EQ(::listen(listener_, requests), 0);
    socklen_t size = sizeof address;
    EXPECT_EQ(::getsockname(listener_, reinterpret_cast<sockaddr*>(&address), &size), 0);
    port_ = ntohs(address.sin_port);
    thread_ = std::thread([this, requests, answer = std::move(answer)] {
      for (int i = 0; i < requests; ++i) {
        const int file = ::accept(listener_, nullptr, nullptr);
        char buffer[4096];
        if (::recv(file, buffer, sizeof buffer, 0) > 0) {
          ::send(file, answer.data(), answer.size(), MSG_NOSIGNAL);
        }
        ::close(file);
      }
    });
  }
  ~ClosingServer() {
    thread_.join();
    ::close(listener_);
  }
  uint16_t port() const { return port_; }

 private:
  int listener_ = -1;
  uint16_t port_ = 0;
  std::thread thread_;
};

TEST(LoadClient, AnAnswerWithoutALengthGoesOnToTheClose) {
  const ClosingServer server("HTTP/1.1 503 Busy\r\n\r\nall of it", 2);
  const auto answer = fetch({.port = server.port()}, "/x");
  ASSERT_TRUE(answer.ok()) << answer.status().message();
  EXPECT_EQ(answer->body, "all of it");
  const std::vector<LoadItem> items(1, {.body = body(5, false)});
  const auto outcomes = run_load({.port = server.port(), .seconds_max = 30}, items);
  ASSERT_TRUE(outcomes.ok());
  EXPECT_EQ((*outcomes)[0].status, 503);
  EXPECT_EQ((*outcomes)[0].error.find("broke"), std::string::npos) << (*outcomes)[0].error;
}

TEST(LoadClient, Fetch) {
  ServerFixture server({}, "");
  const auto metrics = fetch(client_of(server), "/metrics");
  ASSERT_TRUE(metrics.ok());
  EXPECT_EQ(metrics->status, 200);
  EXPECT_NE(metrics->body.find("vllm:num_requests_running"), std::string::npos);
}

}  // namespace
}  // namespace headrace::load_client_test
