// The server when it is crowded, attacked or stopped: queues, limits, slow and vanishing clients,
// draining.
#include <gtest/gtest.h>

#include <atomic>
#include <mutex>
#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "server/progress_time.h"
#include "server/server_fixture.h"

namespace headrace::server_load_test {
namespace {

using namespace std::chrono_literals;
using Fixture = ServerFixture;

// --- Load ----------------------------------------------------------------------------------------

TEST(ServerLoad, AFullQueueIs429WithRetryAfter) {
  Fixture f({.running_max = 1, .queued_max = 1});
  f.model.engine->set_paused(true);
  TestClient first(f.server->port()), second(f.server->port());
  const std::string request =
      fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", kChatPath,
                  kChat.size(), kChat);
  first.send(request);
  second.send(request);
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 2; }));
  const TestResponse refused = f.post(kChatPath, kChat);
  EXPECT_EQ(refused.status, 429);
  EXPECT_TRUE(refused.headers.count("retry-after"));
  f.model.engine->set_paused(false);
  EXPECT_EQ(first.read_response()->status, 200);
  EXPECT_EQ(second.read_response()->status, 200);
  // What was never admitted has not finished, by whatever reason.
  const std::string metrics = f.get("/metrics").body;
  EXPECT_NE(metrics.find("headrace:refused_requests_total{engine=\"0\",model_name=\"tiny\","
                         "status=\"429\"} 1\n"),
            std::string::npos)
      << metrics;
  EXPECT_NE(metrics.find("vllm:request_success_total{engine=\"0\",finished_reason=\"abort\","
                         "model_name=\"tiny\"} 0\n"),
            std::string::npos)
      << metrics;
}

TEST(ServerLoad, SubmittedPromptsAreCancelledWhenALaterOneIsRefused) {
  Fixture f({.running_max = 1, .queued_max = 1});
  f.model.engine->set_paused(true);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":["a","b","c"]})").status, 429);
  EXPECT_EQ(f.model.engine->cancelled(), 2);
}

TEST(ServerLoad, WaitingTooLongInTheQueueIs503) {
  ServerOptions options;
  options.requests.queue_seconds_max = 0.2;
  Fixture f({.running_max = 1}, "x", options);
  f.model.engine->set_paused(true);
  TestClient running(f.server->port());
  running.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", kChatPath,
                           kChat.size(), kChat));
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 1; }));
  EXPECT_EQ(f.post(kChatPath, kChat).status, 503);          // it waits behind the other
  EXPECT_EQ(f.model.engine->stats().scheduler.running, 1);  // the one that runs is left alone
  f.model.engine->set_paused(false);
  EXPECT_EQ(running.read_response()->status, 200);
  // One request left the queue; the other never did.
  EXPECT_NE(f.get("/metrics")
                .body.find("vllm:request_queue_time_seconds_count{engine=\"0\","
                           "model_name=\"tiny\"} 1\n"),
            std::string::npos)
      << f.get("/metrics").body;
  EXPECT_NE(f.get("/metrics").body.find("model_name=\"tiny\",status=\"503\"} 1\n"),
            std::string::npos);
}

// A request of several prompts waits until each has been touched.
TEST(ServerLoad, EveryPromptsWaitIsBounded) {
  ServerOptions options;
  options.requests.queue_seconds_max = 0.2;
  Fixture f({.running_max = 1}, "x", options);
  f.model.engine->set_paused(true);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":["a","b"],"max_tokens":1})").status, 503);
  EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == 2; }));
}

// Whoever has an answer's last byte finds it counted, and gone.
TEST(ServerLoad, AnAnswerIsOverWhenItsClientHasIt) {
  Fixture f({}, "x");
  TestClient asks(f.server->port()), looks(f.server->port());
  const std::string whole = R"({"prompt":"a","max_tokens":1})";
  const std::string stream = R"({"prompt":"a","max_tokens":1,"stream":true})";
  for (int i = 0; i < 100; ++i) {
    ASSERT_EQ(asks.post_text(kCompletions, i % 2 == 0 ? whole : stream)->status, 200);
    ASSERT_EQ(looks.get("/load")->body, R"({"server_load":0})") << i;
  }
}

// What takes only what others leave may wait longer than they may.
TEST(ServerLoad, FlexRequestsHaveAQueueTimeOfTheirOwn) {
  ServerOptions options;
  options.requests.queue_seconds_max = 0.05;
  Fixture f({.running_max = 1}, "x", options);
  f.model.engine->set_paused(true);
  const std::string request = R"({"prompt":"a","max_tokens":1,"service_tier":"flex"})";
  TestClient running(f.server->port()), flex(f.server->port());
  for (TestClient* client : {&running, &flex}) {
    client->send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                             kCompletions, request.size(), request));
  }
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 2; }));
  const TestResponse refused = f.post(kCompletions, R"({"prompt":"a","max_tokens":1})");
  EXPECT_EQ(refused.status, 503);  // it came after them, and its time is over first
  EXPECT_NE(refused.body.find("waited 0.05 s in the queue"), std::string::npos) << refused.body;
  f.model.engine->set_paused(false);
  EXPECT_EQ(running.read_response()->status, 200);
  EXPECT_EQ(flex.read_response()->status, 200);
}

TEST(ServerLoad, ClientsWithOneIdGetTheirOwnAnswers) {
  Fixture f({}, "");
  std::vector<std::thread> threads;
  std::atomic<int> right{0};
  std::mutex mutex;
  std::set<std::string> ids;
  for (int i = 0; i < 32; ++i) {
    threads.emplace_back([&, i] {
      const Json json =
          f.post(
               kCompletions,
               fmt::format(
                   R"({{"prompt":[{}],"max_tokens":20,"return_token_ids":true,"request_id":"same"}})",
                   i),
               "X-Request-Id: same\r\n")
              .json();
      Request request;
      request.prompt = {i};
      bool same = true;
      for (size_t t = 0; t < 20; ++t) {
        same = same && at(choice(json), "token_ids").as_array()[t].as_int() ==
                           f.model.engine->token_at(request, 0, t);
      }
      right += same;
      std::lock_guard lock(mutex);
      ids.insert(at(json, "id").as_string());
    });
  }
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(right, 32);
  EXPECT_EQ(ids, std::set<std::string>{"cmpl-same"});  // as they asked
}

TEST(ServerLoad, KeepAliveAndPipelining) {
  Fixture f;
  TestClient client(f.server->port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  EXPECT_EQ(client.read_response()->body, R"({"status":"ok"})");
  EXPECT_EQ(client.read_response()->status, 200);
  EXPECT_EQ(client.get("/ping")->status, 200);
  EXPECT_EQ(client.get("/ping", "Connection: close\r\n")->status, 200);
  EXPECT_TRUE(client.wait_for_close(10));
}

// As `nc -N` and scripts do: the answers that need no model are written, then the server closes.
TEST(ServerLoad, WhoEndsItsSideIsAnswered) {
  Fixture f;
  TestClient client(f.server->port());
  client.send("GET /health HTTP/1.1\r\nHost: x\r\n\r\nGET /v1/models HTTP/1.1\r\nHost: x\r\n\r\n");
  client.end_sending();
  EXPECT_EQ(client.read_response()->body, R"({"status":"ok"})");
  EXPECT_EQ(client.read_response()->status, 200);
  EXPECT_TRUE(client.wait_for_close(10));
  TestClient text(f.server->port());  // is read on another thread
  text.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 14\r\n\r\n{\"prompt\":\"a\"}");
  text.end_sending();
  EXPECT_EQ(text.read_response()->status, 200);
  EXPECT_TRUE(text.wait_for_close(10));
  TestClient cut(f.server->port());
  cut.send("GET /health HTTP/1.1\r\nHo");
  cut.end_sending();
  EXPECT_TRUE(cut.wait_for_close(10));
}

// Who has closed and who reads on look the same: a model works for neither.
TEST(ServerLoad, WhoEndsItsSideCancelsWhatIsComputed) {
  Fixture f({.step_seconds = 0.001}, "");
  for (const std::string_view body : {kChat, kChatStream}) {
    TestClient client(f.server->port());
    const int before = f.model.engine->cancelled();
    f.model.engine->set_paused(true);
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                            kChatPath, body.size(), body));
    client.end_sending();
    EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == before + 1; })) << body;
    EXPECT_TRUE(client.wait_for_close(10));
    f.model.engine->set_paused(false);
  }
}

TEST(ServerLoad, ExpectContinue) {
  Fixture f;
  TestClient client(f.server->port());
  client.send(fmt::format(
      "POST {} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
      kChatPath, kChat.size()));
  EXPECT_EQ(client.receive(25, 10), "HTTP/1.1 100 Continue\r\n\r\n");
  client.send(kChat);
  EXPECT_EQ(client.read_response()->status, 200);
}

// --- Clients that misbehave ----------------------------------------------------------------------

// HTTP/1.0 has no answers before the answer (RFC 9110 10.1.1).
TEST(ServerLoad, ExpectMeansNothingInHttp10) {
  Fixture f;
  TestClient client(f.server->port());
  const std::string body = R"({"prompt":"a","max_tokens":1})";
  client.send(fmt::format(
      "POST {} HTTP/1.0\r\nHost: x\r\nExpect: 100-continue\r\nContent-Length: {}\r\n\r\n",
      kCompletions, body.size()));
  EXPECT_EQ(client.receive(1, 0.1), "");
  client.send(body);
  EXPECT_EQ(client.receive(12).substr(9), "200");
}

// The answer to HEAD has no body, also where the request is not read.
TEST(ServerLoad, ARefusedHeadHasNoBody) {
  ServerOptions options;
  options.http.body_bytes_max = options.http.upload_bytes_max = 10;
  Fixture f({}, "x", options);
  TestClient client(f.server->port());
  client.send("HEAD /health HTTP/1.1\r\nHost: x\r\nContent-Length: 1000\r\n\r\n");
  const std::string answer = client.receive(1 << 16, 1);
  EXPECT_TRUE(answer.starts_with("HTTP/1.1 413 ")) << answer;
  EXPECT_TRUE(answer.ends_with("\r\n\r\n")) << answer;
}

TEST(ServerLoad, DisconnectCancelsStreamsAndWholeAnswers) {
  for (std::string_view stream : {"true", "false"}) {
    Fixture f({.step_seconds = 0.005}, "");
    {
      TestClient client(f.server->port());
      const std::string body =
          fmt::format(R"({{"prompt":["a","b"],"n":2,"max_tokens":3000,"stream":{}}})", stream);
      client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                              kCompletions, body.size(), body));
      ASSERT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 2; }));
    }
    EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 0; }))
        << stream;
    EXPECT_EQ(f.model.engine->cancelled(), 2);
    EXPECT_EQ(at(f.get("/load").json(), "server_load").as_int(), 0);
  }
}

TEST(ServerLoad, AReaderThatNeverReadsIsAborted) {
  ServerOptions options;
  options.http.stalled_write_seconds_max = 0.5;
  Fixture f({.max_model_len = 1 << 20}, "", options);
  TestClient client(f.server->port(), 4096);
  const std::string body =
      R"({"prompt":"a","n":8,"max_tokens":100000,"stream":true,"logprobs":20})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 1; }));
  EXPECT_EQ(f.get("/health").status, 200);
  EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 0; }, 20));
  EXPECT_EQ(f.model.engine->cancelled(), 1);
}

// A byte now and then holds nothing for ever, and who is fast has no end of time.
TEST(ProgressTime, IsEarnedByBytes) {
  ProgressTime time;
  ProgressTime::TimePoint now{};
  EXPECT_FALSE(time.running());
  time.begin(30, now);
  EXPECT_TRUE(time.running());
  for (int i = 0; i < 100; ++i) {  // twice as fast as it must be
    time.add(2000);
    EXPECT_DOUBLE_EQ(time.look(1000, now += 1s), 30);
  }
  for (int i = 1; i < 40; ++i) {  // a quarter as fast
    time.add(250);
    EXPECT_DOUBLE_EQ(time.look(1000, now += 1s), 30 - 0.75 * i);
  }
  time.add(1);
  EXPECT_NEAR(time.look(1000, now += 1s), 0, 1e-9);
  EXPECT_EQ(time.bytes(), 100u * 2000 + 39u * 250 + 1);
  time.begin(30, now);
  EXPECT_DOUBLE_EQ(time.look(1000, now += 12s), 18);
  EXPECT_EQ(time.bytes(), 0u);
  time.stop();
  EXPECT_FALSE(time.running());
}

TEST(ServerLoad, ASlowReaderGetsEverything) {
  Fixture f({.max_model_len = 1 << 20}, "");
  TestClient client(f.server->port(), 4096);
  const std::string body =
      R"({"prompt":[5],"max_tokens":3000,"stream":true,"return_token_ids":true})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  std::this_thread::sleep_for(300ms);  // far more than the unsent limit piles up meanwhile
  const auto response = client.read_response(20);
  ASSERT_TRUE(response);
  size_t tokens = 0;
  Request request;
  request.prompt = {5};
  for (const std::string& event : response->events()) {
    if (event == "[DONE]") continue;
    const Json chunk = *parse_json(event);
    for (const Json& id : at(choice(chunk), "token_ids").as_array()) {
      ASSERT_EQ(id.as_int(), f.model.engine->token_at(request, 0, tokens++));
    }
  }
  EXPECT_EQ(tokens, 3000u);
}

// The deadline of a write that had to wait is not that of the silence behind it.
TEST(ServerLoad, AStreamMayBeSilentBehindAReaderThatWasSlow) {
  ServerOptions options;
  options.http.stalled_write_seconds_max = 1;
  Fixture f({.max_model_len = 1 << 20, .step_seconds = 0.0005}, "", options);
  TestClient client(f.server->port(), 16 << 10);
  const std::string body = R"({"prompt":"a","n":8,"max_tokens":1000,"stream":true,"logprobs":20})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  std::this_thread::sleep_for(400ms);
  f.model.engine->set_paused(true);
  size_t bytes = 0;
  for (std::string piece; !(piece = client.receive(1 << 16, 0.3)).empty();) bytes += piece.size();
  EXPECT_GT(bytes, size_t{1} << 20);
  std::this_thread::sleep_for(1500ms);
  EXPECT_EQ(f.model.engine->cancelled(), 0);
  f.model.engine->set_paused(false);
  std::string end;
  for (std::string piece; !(piece = client.receive(1 << 16, 1)).empty();) {
    end = (end + piece).substr(end.size() > 64 ? end.size() - 64 : 0);
  }
  EXPECT_NE(end.find("[DONE]"), end.npos);
}

TEST(ServerLoad, SlowRequestsTimeOut) {
  ServerOptions options;
  options.http.head_seconds_max = 0.3;
  options.http.body_seconds_max = 0.3;
  options.http.idle_seconds_max = 0.3;
  Fixture f({}, "x", options);
  TestClient silent(f.server->port()), head(f.server->port()), body(f.server->port()),
      idle(f.server->port());
  head.send("GET /health HT");
  body.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 100\r\n\r\n{");
  EXPECT_EQ(idle.get("/health")->status, 200);
  for (int i = 0; i < 3; ++i) {  // dripping earns no time
    std::this_thread::sleep_for(50ms);
    head.send("T");
    body.send(" ");
  }
  EXPECT_TRUE(silent.wait_for_close(10));
  EXPECT_EQ(head.read_response()->status, 408);
  EXPECT_EQ(body.read_response()->status, 408);
  EXPECT_TRUE(idle.wait_for_close(10));
  EXPECT_EQ(f.get("/health").status, 200);
}

TEST(ServerLoad, OversizedRequestsAreRefusedWhileReading) {
  Fixture f;
  TestClient announced(f.server->port()), chunked(f.server->port()), header(f.server->port());
  announced.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nContent-Length: 99999999\r\n\r\n");
  EXPECT_EQ(announced.read_response()->status, 413);
  chunked.send("POST /tokenize HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n");
  const std::string chunk = "100000\r\n" + std::string(1 << 20, 'a') + "\r\n";
  for (int i = 0; i < 12 && chunked.send(chunk); ++i) {
  }
  EXPECT_EQ(chunked.read_response()->status, 413);
  header.send("GET /" + std::string(40000, 'a'));
  EXPECT_EQ(header.read_response()->status, 431);
  EXPECT_EQ(f.get("/health").status, 200);
}

TEST(ServerLoad, ConnectionsPerAddressAndInAllAreBounded) {
  ServerOptions options;
  options.http.connections_per_address_max = 4;
  Fixture f({}, "x", options);
  {
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int i = 0; i < 4; ++i) {
      clients.push_back(std::make_unique<TestClient>(f.server->port()));
      EXPECT_EQ(clients.back()->get("/health")->status, 200);
    }
    TestClient fifth(f.server->port());
    EXPECT_EQ(fifth.read_response()->status, 429);
    EXPECT_EQ(clients[0]->get("/health")->status, 200);
  }
  EXPECT_TRUE(eventually([&] {
    const auto response = TestClient(f.server->port()).get("/health");
    return response && response->status == 200;
  }));
}

// --- Shutting down -------------------------------------------------------------------------------

TEST(ServerLoad, DrainFinishesWhatRunsAndRefusesTheRest) {
  Fixture f({.step_seconds = 0.005}, "");
  std::vector<std::thread> threads;
  std::atomic<int> whole{0};
  for (int i = 0; i < 16; ++i) {
    threads.emplace_back([&] {
      const auto events =
          f.post(kCompletions, R"({"prompt":"a","max_tokens":100,"stream":true})").events();
      whole += events.back() == "[DONE]" &&
               events[events.size() - 2].find("length") != std::string::npos;
    });
  }
  TestClient idle(f.server->port());
  EXPECT_EQ(idle.get("/health")->status, 200);
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 16; }));
  f.server->drain();
  EXPECT_TRUE(idle.wait_for_close(10));
  const TestResponse health = f.get("/health");
  EXPECT_EQ(health.status, 503);
  const TestResponse refused = f.post(kCompletions, R"({"prompt":"a"})");
  EXPECT_EQ(refused.status, 503);
  EXPECT_EQ(refused.headers.at("connection"), "close");
  for (std::thread& thread : threads) thread.join();
  EXPECT_EQ(whole, 16);
  EXPECT_TRUE(f.server->wait());
}

TEST(ServerLoad, DrainEndsAtItsDeadline) {
  ServerOptions options;
  options.drain_seconds_max = 0.2;
  Fixture f({.step_seconds = 0.01}, "", options);
  TestClient client(f.server->port());
  const std::string body = R"({"prompt":"a","max_tokens":4000,"stream":true})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 1; }));
  f.server->drain();
  EXPECT_FALSE(f.server->wait());
  EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 0; }));
}

// Who is cut off is told so: a stream by its last event, others by a status.
TEST(ServerLoad, AnswersThatAreCutEndWithAnError) {
  Fixture f({.step_seconds = 0.01}, "");
  TestClient stream(f.server->port()), whole(f.server->port());
  for (TestClient* client : {&stream, &whole}) {
    const std::string body = fmt::format(R"({{"prompt":"a","max_tokens":4000,"stream":{}}})",
                                         client == &stream ? "true" : "false");
    client->send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                             kCompletions, body.size(), body));
  }
  const std::string begin = stream.receive(15);
  EXPECT_EQ(begin, "HTTP/1.1 200 OK");
  ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == 2; }));
  f.server->cut();
  const std::string rest = stream.receive(1 << 20);
  const std::string end = "data: [DONE]\n\n\r\n0\r\n\r\n";
  EXPECT_TRUE(rest.ends_with(end)) << rest.substr(rest.size() - std::min<size_t>(200, rest.size()));
  EXPECT_NE(rest.find(R"({"error":{"message":"the server shuts down)"), std::string::npos);
  const auto response = whole.read_response();
  ASSERT_TRUE(response);
  EXPECT_EQ(response->status, 503);
  EXPECT_NE(response->body.find("the server shuts down"), std::string::npos) << response->body;
  EXPECT_FALSE(f.server->wait());
  EXPECT_EQ(f.model.engine->cancelled(), 2);
}

TEST(ServerLoad, StopsWithAnswersUnderWay) {
  for (int i = 0; i < 5; ++i) {
    Fixture f({.step_seconds = 0.001}, "");
    std::vector<std::unique_ptr<TestClient>> clients;
    for (int c = 0; c < 8; ++c) {
      clients.push_back(std::make_unique<TestClient>(f.server->port()));
      const std::string body = R"({"prompt":"a","n":4,"max_tokens":4000,"stream":true})";
      clients.back()->send(
          fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", kCompletions,
                      body.size(), body));
    }
    EXPECT_TRUE(eventually([&] { return f.model.engine->submitted() == 8; }));
    f.server.reset();  // the engine lives on and must not be hurt
  }
}

}  // namespace
}  // namespace headrace::server_load_test
