// One request at a worker whose bytes a test gives: what is settled when the client has which of
// them.
#include "route/proxied_request.h"

#include <gtest/gtest.h>

#include "route/last_event.h"

namespace headrace::proxied_request_test {
namespace {

// Tells a test of what its client is about to get.
class ToldExchange final : public Exchange {
 public:
  void respond(HttpResponse response) override { pass(response.body); }
  void begin_stream(HttpResponse) override {}
  void write(std::string_view bytes) override { pass(bytes); }
  void end_stream(std::string_view last) override {
    pass(last);
    ended = true;
    observer_.reset();
  }
  bool over_unsent_limit() const override { return false; }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    observer_ = std::move(observer);
  }
  void post(std::function<void()> task) override { task(); }
  void call_after(double, std::function<void()>) override {}

  std::function<void()> before;  // each piece
  std::string text;
  bool ended = false;

 private:
  void pass(std::string_view bytes) {
    before();
    text += bytes;
  }
  std::shared_ptr<ExchangeObserver> observer_;
};

class GivenAttempt final : public WorkerAttempt {
 public:
  GivenAttempt(WorkerLease lease, Callbacks callbacks)
      : lease_(std::move(lease)), callbacks_(std::move(callbacks)) {}

  void start(std::string, std::shared_ptr<const std::string>, bool) override {}
  void read() override {}
  void abandon() override {
    callbacks_ = {};
    lease_.release();
  }
  void finish() override { abandon(); }
  WorkerAnswer& answer() override { return answer_; }
  int worker() const override { return lease_.id(); }
  bool connected() const override { return true; }
  double silent_seconds() const override { return 0; }

  void come(std::string_view bytes) {
    ASSERT_TRUE(answer_.feed(bytes).ok());
    const auto on_bytes = callbacks_.on_bytes;
    ASSERT_TRUE(on_bytes);
    on_bytes();
  }

 private:
  WorkerLease lease_;
  Callbacks callbacks_;
  WorkerAnswer answer_;
};

class GivenAttempts final : public AttemptSource {
 public:
  std::shared_ptr<WorkerAttempt> make(WorkerLease lease, std::shared_ptr<Exchange>,
                                      WorkerAttempt::Callbacks callbacks) override {
    return last = std::make_shared<GivenAttempt>(std::move(lease), std::move(callbacks));
  }
  std::shared_ptr<GivenAttempt> last;
};

struct Protocol {
  std::string_view path, body, type, event, last;
};
constexpr std::string_view kSse = "text/event-stream", kNdjson = "application/x-ndjson";
constexpr Protocol kProtocols[] = {
    {"/v1/chat/completions", R"({"stream":true})", kSse, "data: {\"choices\":[]}\n\n",
     "data: [DONE]\n\n"},
    {"/v1/messages", R"({"stream":true})", kSse, "event: content_block_stop\ndata: {}\n\n",
     "event: message_stop\ndata: {}\n\n"},
    {"/v1/responses", R"({"stream":true})", kSse, "event: response.created\ndata: {}\n\n",
     "event: response.completed\ndata: {}\n\n"},
    {"/v1/responses", R"({"stream":true})", kSse, "event: response.created\ndata: {}\n\n",
     "event: response.incomplete\ndata: {}\n\n"},
    {"/api/chat", "{}", kNdjson, "{\"done\":false}\n", "{\"done\":true}\n"},
    {"/completion", R"({"stream":true,"prompt":"a"})", kSse, "data: {\"stop\":false}\n\n",
     "data: {\"content\":\"\",\"stop\":true}\n\n"},
    {"/generate_stream", R"({"inputs":"a"})", kSse, "data: {\"generated_text\":null}\n\n",
     "data: {\"generated_text\":\"x\"}\n\n"},
};

// A client that has the last event sends its next request: the end of the chunks, which comes
// behind it, is nothing that it waits for.
TEST(ProxiedRequest, ALastEventEndsWhatItsKeyHolds) {
  for (const Protocol& protocol : kProtocols) {
    SCOPED_TRACE(protocol.last);
    VirtualClock clock;
    ProxyOptions options;
    ModelAliases aliases;
    WorkerTable table({}, clock);
    WorkerReport ready;
    ready.health = WorkerReport::Health::kReady;
    table.report(table.add({.tls = false, .host = "w", .port = "1", .path = "/"}), ready);
    GivenAttempts attempts;
    RouteMetrics metrics;
    BodyBudget journals(1 << 20);
    RouteContext context{options, aliases, table, attempts, metrics, journals, clock};
    KeyQuota quota({.concurrent_requests = 1}, clock);
    const auto exchange = std::make_shared<ToldExchange>();
    bool free = false;
    exchange->before = [&] { free = quota.admit().lease != nullptr; };
    HttpRequest request;
    request.method = "POST";
    request.path = protocol.path;
    request.body = protocol.body;
    std::make_shared<ProxiedRequest>(context, request, exchange, quota.admit().lease)->start();
    const auto come = [&](std::string_view event) {
      std::string chunk;
      append_chunk(chunk, event);
      attempts.last->come(chunk);
    };
    attempts.last->come("HTTP/1.1 200 OK\r\nTransfer-Encoding: chunked\r\nContent-Type: " +
                        std::string(protocol.type) + "\r\n\r\n");
    come(protocol.event);
    EXPECT_FALSE(free);
    come(protocol.last);
    EXPECT_TRUE(free);
    EXPECT_FALSE(exchange->ended);
    EXPECT_EQ(exchange->text, std::string(protocol.event) + std::string(protocol.last));
    attempts.last->come(kLastChunk);
    EXPECT_TRUE(exchange->ended);
  }
}

TEST(LastEvent, IsNoneOfSeveralAnswersAndNotWhatAnswersSay) {
  const auto has = [](std::string_view events, bool one_answer = true) {
    return has_last_event(events, StreamFraming::kEvents, one_answer);
  };
  EXPECT_TRUE(has("data: {\"a\":1}\n\ndata:[DONE]\r\n\r\n"));
  EXPECT_FALSE(has("data: {\"stop\":true}\n\n", false));
  EXPECT_FALSE(has("data: {\"content\":\"\\\"stop\\\":true [DONE]\",\"stop\":false}\n\n"));
  EXPECT_FALSE(has("event: message_stopped\ndata: {}\n\n"));
  EXPECT_FALSE(has(": [DONE]\n\n"));
  EXPECT_FALSE(has(""));
  EXPECT_FALSE(has_last_event("{\"message\":{\"done\":true},\"done\":false}\n",
                              StreamFraming::kLines, true));
}

}  // namespace
}  // namespace headrace::proxied_request_test
