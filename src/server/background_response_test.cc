// Responses that are made while no client waits: what is seen of them, how they end, and their
// events.
#include <gtest/gtest.h>

#include <string>
#include <vector>

#include <fmt/format.h>

#include "server/background_response.h"
#include "server/event_log.h"
#include "server/server_fixture.h"

namespace headrace::background_response_test {
namespace {

constexpr std::string_view kResponses = "/v1/responses";

// As they were sent: "event: NAME\ndata: {...}".
std::vector<std::string> named_events(const TestResponse& response) {
  std::vector<std::string> events;
  for (size_t at = 0; at < response.body.size();) {
    const size_t end = response.body.find("\n\n", at);
    CHECK(end != std::string::npos);
    events.push_back(response.body.substr(at, end - at));
    at = end + 2;
  }
  return events;
}

struct BackgroundFixture : ServerFixture {
  using ServerFixture::ServerFixture;

  TestResponse create(std::string_view members = "") {
    return post(kResponses, R"({"input":"hi","background":true)" + std::string(members) + "}");
  }
  std::string path_of(const TestResponse& created) {
    return fmt::format("{}/{}", kResponses, at(created.json(), "id").as_string());
  }
  std::string status_of(const std::string& path) {
    const TestResponse response = get(path);
    return response.status == 200 ? at(response.json(), "status").as_string() : "";
  }
  TestResponse ask(std::string_view method, const std::string& path) {
    TestClient client(server->port());
    client.send(
        fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: 0\r\n\r\n", method, path));
    return client.read_response().value();
  }
  bool is_idle() { return model.engine->stats().scheduler.running == 0; }
};

TEST(BackgroundResponses, AreQueuedThenInProgressThenComplete) {
  BackgroundFixture f({.running_max = 1});
  f.model.engine->set_paused(true);
  const std::string first = f.path_of(f.create());
  const TestResponse queued = f.create();
  EXPECT_EQ(queued.status, 200);
  EXPECT_EQ(at(queued.json(), "status"), Json("queued"));
  const std::string second = f.path_of(queued);
  EXPECT_TRUE(eventually([&] { return f.status_of(first) == "in_progress"; }));
  EXPECT_EQ(f.status_of(second), "queued");
  EXPECT_EQ(f.get(first + "/input_items").status, 200);
  f.model.engine->set_paused(false);
  EXPECT_TRUE(eventually([&] { return f.status_of(second) == "completed"; }));
  EXPECT_EQ(f.status_of(first), "completed");
  const Json answer = f.get(second).json();
  EXPECT_EQ(at(at(at(answer, "output").as_array().at(0), "content").as_array().at(0), "text"),
            Json("hello world"));
}

TEST(BackgroundResponses, AreCancelled) {
  BackgroundFixture f;
  f.model.engine->set_paused(true);
  const std::string path = f.path_of(f.create());
  const TestResponse cancelled = f.ask("POST", path + "/cancel");
  EXPECT_EQ(at(cancelled.json(), "status"), Json("cancelled"));
  EXPECT_EQ(f.model.engine->cancelled(), 1);
  EXPECT_EQ(f.status_of(path), "cancelled");
  EXPECT_EQ(f.ask("POST", path + "/cancel").body, cancelled.body);
  f.model.engine->set_paused(false);
  EXPECT_EQ(f.status_of(path), "cancelled");
}

TEST(BackgroundResponses, AreDeletedWhileTheyAreMade) {
  BackgroundFixture f;
  f.model.engine->set_paused(true);
  const std::string path = f.path_of(f.create());
  EXPECT_EQ(at(f.ask("DELETE", path).json(), "deleted"), Json(true));
  EXPECT_EQ(f.get(path).status, 404);
  EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == 1; }));
  EXPECT_EQ(f.get(path).status, 404);
}

TEST(BackgroundResponses, GoOnWithoutTheClientOfTheirStream) {
  BackgroundFixture f;
  f.model.engine->set_paused(true);
  std::string path;
  {
    TestClient client(f.server->port());
    const std::string body = R"({"input":"hi","background":true,"stream":true})";
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                            kResponses, body.size(), body));
    EXPECT_TRUE(eventually([&] { return f.model.engine->submitted() == 1; }));
  }
  f.model.engine->set_paused(false);
  EXPECT_TRUE(eventually([&] { return f.is_idle(); }));
  EXPECT_EQ(f.model.engine->cancelled(), 0);
}

TEST(BackgroundResponses, ThatFailSaySo) {
  BackgroundFixture f;
  f.model.engine->fail_next_emission();
  const std::string path = f.path_of(f.create());
  EXPECT_TRUE(eventually([&] { return f.status_of(path) == "failed"; }));
  EXPECT_EQ(at(at(f.get(path).json(), "error"), "message"), Json("the model gave no valid output"));
}

// What the engine refuses is told at once, and nothing of it is kept.
TEST(BackgroundResponses, AreRefusedWhereTheQueueIsFull) {
  BackgroundFixture f({.running_max = 1, .queued_max = 0});
  f.model.engine->set_paused(true);
  EXPECT_EQ(f.create().status, 200);
  EXPECT_EQ(f.create().status, 429);
  EXPECT_EQ(f.create(R"(,"stream":true)").status, 429);
  EXPECT_EQ(f.create(R"(,"store":false)").error_param(), "background");
  ServerOptions nothing;
  nothing.requests.stored_response_bytes_max = 0;
  BackgroundFixture none({}, "x", std::move(nothing));
  EXPECT_EQ(none.create().error_param(), "background");
}

TEST(BackgroundResponses, ThrowingEndsThemAlone) {
  BackgroundFixture f;
  f.model.engine->throw_when_submitted(true);
  EXPECT_EQ(f.create().status, 500);
  f.model.engine->throw_when_submitted(false);
  const std::string path = f.path_of(f.create());
  EXPECT_TRUE(eventually([&] { return f.status_of(path) == "completed"; }));
}

TEST(BackgroundResponses, EventsAreReadFromAnyOfThemOn) {
  BackgroundFixture f;
  const std::vector<std::string> all = named_events(f.create(R"(,"stream":true)"));
  ASSERT_GT(all.size(), 5u);
  const Json first_event = *parse_json(std::string_view(all[0]).substr(all[0].find('{')));
  const Json response = at(first_event, "response");
  const std::string path = fmt::format("{}/{}", kResponses, at(response, "id").as_string());
  for (size_t first = 0; first <= all.size(); ++first) {
    const std::string query =
        first == 0 ? "?stream=true" : fmt::format("?stream=true&starting_after={}", first - 1);
    EXPECT_EQ(named_events(f.get(path + query)),
              std::vector<std::string>(all.begin() + static_cast<ptrdiff_t>(first), all.end()));
  }
  EXPECT_EQ(f.get(path + "?stream=yes").error_param(), "stream");
  EXPECT_EQ(f.get(path + "?stream=true&starting_after=x").error_param(), "starting_after");
  const std::string plain = f.path_of(f.create());
  EXPECT_EQ(f.get(plain + "?stream=true").error_param(), "stream");
}

// The next request may be on its way as soon as the last event is.
TEST(BackgroundResponses, AreContinuedAtOnce) {
  BackgroundFixture f;
  const std::string body = R"({"input":"hi","background":true,"stream":true})";
  TestClient next(f.server->port());
  for (int i = 0; i < 40; ++i) {
    TestClient client(f.server->port());
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                            kResponses, body.size(), body));
    std::string text;
    while (text.find("\"type\":\"response.completed\"") == text.npos) {
      const std::string more = client.receive(1);
      ASSERT_FALSE(more.empty()) << text;
      text += more;
    }
    const size_t id = text.find("resp_");
    const auto answer =
        next.post_text(kResponses, fmt::format(R"({{"input":"go on","previous_response_id":"{}"}})",
                                               text.substr(id, text.find('"', id) - id)));
    ASSERT_TRUE(answer);
    ASSERT_EQ(answer->status, 200) << answer->body;
  }
}

// Nobody could go on with it elsewhere: who follows is told of events alone.
TEST(BackgroundResponses, HaveNoJournal) {
  BackgroundFixture f;
  const auto create = [&](std::string_view headers) {
    return f.post(kResponses, R"({"input":"hi","background":true,"stream":true})", headers);
  };
  const TestResponse asked = create("X-Headrace-Journal: 1\r\n");
  EXPECT_EQ(asked.body.find(": journal"), asked.body.npos) << asked.body;
  EXPECT_EQ(named_events(asked).size(), named_events(create("")).size());
  const TestResponse resumed =
      f.post(kResponses, R"({"input":"hi","background":true,"stream":true,"headrace_resume":{}})");
  EXPECT_EQ(resumed.error_param(), "headrace_resume");
}

TEST(BackgroundResponse, IsKeptBeforeItIsShownToBeComplete) {
  PostBox box;
  std::shared_ptr<BackgroundResponse> response;
  std::vector<std::string> kept;
  response = std::make_shared<BackgroundResponse>(
      box, 1 << 20,
      BackgroundResponse::Keeper{
          .complete =
              [&](const std::string& id, StoredResponse stored) {
                EXPECT_EQ(response->shown(), R"({"status":"queued"})");
                kept.push_back(id + stored.response + stored.output_items + stored.previous);
              },
          .end =
              [&](const std::string& id, std::optional<StoredResponse> stored) {
                kept.push_back(id + (stored ? stored->response : ""));
              }});
  response->announce("resp_1", Json::object().set("status", "queued"), "[]", "resp_0");
  response->complete(Json::object().set("status", "completed"), "[1]");
  EXPECT_EQ(kept, std::vector<std::string>{R"(resp_1{"status":"completed"}[1]resp_0)"});
  response->end_stream("data: 1\n\n");
  ASSERT_EQ(kept.size(), 2u);
  EXPECT_EQ(kept[1], R"(resp_1{"status":"completed"})");
  EXPECT_EQ(response->events()->bytes(), 9 + sizeof(size_t));
}

// Its strand is a list of tasks that a test works off.
class ListedExchange final : public Exchange {
 public:
  void respond(HttpResponse) override { said += "respond;"; }
  void begin_stream(HttpResponse) override { said += "head;"; }
  void write(std::string_view bytes) override { said += bytes; }
  void end_stream(std::string_view last) override { said.append(last).append("end;"); }
  bool over_unsent_limit() const override { return false; }
  void observe(std::shared_ptr<ExchangeObserver> observer) override {
    observer_ = std::move(observer);
  }
  void post(std::function<void()> task) override {
    if (const auto first = std::exchange(before_post, nullptr)) first();
    tasks.push_back(std::move(task));
  }
  void call_after(double, std::function<void()> task) override { timers.push_back(task); }
  void ring() {  // the last of its timers
    const std::function<void()> timer = timers.back();
    timer();
  }
  void work() {
    for (size_t i = 0; i < tasks.size(); ++i) {
      const std::function<void()> task = tasks[i];  // which may add others
      task();
    }
    tasks.clear();
  }

  std::function<void()> before_post;
  std::vector<std::function<void()>> tasks, timers;
  std::string said;

 private:
  std::shared_ptr<ExchangeObserver> observer_;
};

// An event that comes while somebody begins to follow does not overtake the head of his answer.
TEST(EventLog, AFollowersHeadComesFirst) {
  const auto log = std::make_shared<EventLog>(1000);
  const auto exchange = std::make_shared<ListedExchange>();
  exchange->before_post = [&] { log->append("data: 1\n\n"); };
  EventLog::follow(log, exchange, 0, 0);
  exchange->work();
  EXPECT_EQ(exchange->said, "head;data: 1\n\n");
  log->append("data: 2\n\n");
  log->close();
  exchange->work();
  EXPECT_EQ(exchange->said, "head;data: 1\n\ndata: 2\n\nend;");
  EXPECT_TRUE(exchange->timers.empty());
}

TEST(EventLog, ASilentFollowerIsKeptAwake) {
  const auto log = std::make_shared<EventLog>(1000);
  const auto exchange = std::make_shared<ListedExchange>();
  EventLog::follow(log, exchange, 0, 10);
  exchange->work();
  ASSERT_EQ(exchange->timers.size(), 1u);
  exchange->ring();
  EXPECT_EQ(exchange->said, "head;: keep-alive\n\n");
  log->append("data: 1\n\n");
  exchange->work();
  exchange->ring();  // it has said something
  EXPECT_EQ(exchange->said, "head;: keep-alive\n\ndata: 1\n\n");
  exchange->ring();
  EXPECT_EQ(exchange->said, "head;: keep-alive\n\ndata: 1\n\n: keep-alive\n\n");
  EXPECT_EQ(log->bytes(), 9 + sizeof(size_t));  // a comment is no event
  log->close();
  exchange->work();
  EXPECT_EQ(exchange->timers.size(), 4u);
  exchange->ring();
  EXPECT_EQ(exchange->timers.size(), 4u);
}

// Over its bound a log has nothing, and says so by ending who follows.
TEST(EventLog, IsBounded) {
  EventLog log(20);
  log.append("data: 1\n\n");
  EXPECT_TRUE(log.whole());
  log.append("data: 23456789012\n\n");
  EXPECT_FALSE(log.whole());
  EXPECT_EQ(log.bytes(), 0u);
  log.append("data: 1\n\n");
  EXPECT_EQ(log.bytes(), 0u);
}

}  // namespace
}  // namespace headrace::background_response_test
