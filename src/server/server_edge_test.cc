// The server against clients that mean harm: what takes long, much or for ever is refused, and
// those beside them do not notice.
#include <gtest/gtest.h>
#include <unistd.h>

#include <algorithm>
#include <atomic>
#include <chrono>
#include <filesystem>
#include <functional>
#include <memory>
#include <optional>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "server/answer_budget.h"
#include "server/memory_fixture.h"
#include "server/server_fixture.h"

namespace headrace::server_edge_test {
namespace {

namespace fs = std::filesystem;
using Fixture = ServerFixture;

double seconds_of(const std::function<void()>& work) {
  const auto start = std::chrono::steady_clock::now();
  work();
  return std::chrono::duration<double>(std::chrono::steady_clock::now() - start).count();
}

std::string head_of(std::string_view path, size_t length, std::string_view headers = "") {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n{}\r\n", path, length,
                     headers);
}

std::string zeros(size_t count) {
  std::string text = "0";
  while (text.size() + 1 < 2 * count) text += ",0";
  return text;
}

// --- JSON ----------------------------------------------------------------------------------------

std::string kwargs_body(int keys) {
  std::string body = R"({"messages":[{"role":"user","content":"x"}],"chat_template_kwargs":{)";
  for (int i = 0; i < keys; ++i) body += fmt::format(R"({}"k{}":0)", i > 0 ? "," : "", i);
  return body + "}}";
}

TEST(Edge, TemplateKwargsAreBounded) {
  Fixture f;
  EXPECT_EQ(f.post(kChatPath, kwargs_body(64)).status, 200);
  for (const std::string_view path : {kChatPath, std::string_view("/tokenize")}) {
    const TestResponse refused = f.post(path, kwargs_body(65));
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.error_param(), "chat_template_kwargs");
    EXPECT_NE(refused.body.find("at most 64 members"), std::string::npos) << refused.body;
  }
}

#ifdef HEADRACE_SANITIZED
constexpr double kSlower = 20;
#else
constexpr double kSlower = 1;
#endif

// 50,000 keys took 10.8 s each, on a thread that serves /health. The bound of the slowest is for
// machines under load: what is quadratic misses it by far.
TEST(Edge, ManyKeysAreRefusedAtOnceWhileHealthAnswers) {
  Fixture f;
  const std::string body = kwargs_body(90'000);
  std::atomic<bool> done{false};
  std::vector<std::vector<double>> answers(4);
  std::vector<std::thread> clients;
  for (std::vector<double>& mine : answers) {
    clients.emplace_back([&] {
      for (int i = 0; i < 6; ++i) {
        mine.push_back(seconds_of([&] { EXPECT_EQ(f.post(kChatPath, body).status, 400); }));
      }
    });
  }
  std::vector<double> health;
  std::thread prober([&] {
    while (!done) {
      health.push_back(seconds_of([&] { EXPECT_EQ(f.get("/health").status, 200); }));
      std::this_thread::sleep_for(std::chrono::milliseconds(2));
    }
  });
  for (std::thread& client : clients) client.join();
  done = true;
  prober.join();
  const double alone = seconds_of([&] { EXPECT_EQ(f.post(kChatPath, body).status, 400); });
  std::sort(health.begin(), health.end());
  double slowest = 0;
  for (const auto& mine : answers)
    slowest = std::max(slowest, *std::max_element(mine.begin(), mine.end()));
  fmt::print(
      "90,000 keys: alone {:.1f} ms, slowest of 24 from 4 clients {:.1f} ms; /health beside "
      "them: median {:.2f} ms, slowest of {} {:.2f} ms\n",
      alone * 1e3, slowest * 1e3, health[health.size() / 2] * 1e3, health.size(),
      health.back() * 1e3);
  EXPECT_LT(slowest, 5);
  EXPECT_LT(alone, 0.05 * kSlower);
  EXPECT_LT(health[health.size() / 2], 0.01 * kSlower);
}

// What takes long takes a text thread; all of them taken, the others go on.
TEST(Edge, LongTextsHoldUpNeitherHealthNorStreams) {
  Fixture f({.step_seconds = 0.001}, "");
  const Json text = Json(std::string(size_t{1} << 20, 'x'));
  const Json long_text = Json::object().set("content", text);
  std::atomic<bool> done{false};
  std::vector<std::thread> clients;
  for (int i = 0; i < 4; ++i) {
    clients.emplace_back([&] {
      while (!done) EXPECT_EQ(f.post("/tokenize", write_json(long_text)).status, 200);
    });
  }
  std::vector<double> health;
  for (int i = 0; i < 50; ++i) {
    health.push_back(seconds_of([&] { EXPECT_EQ(f.get("/health").status, 200); }));
  }
  done = true;
  for (std::thread& client : clients) client.join();
  std::sort(health.begin(), health.end());
  EXPECT_LT(health[health.size() / 2], 0.5);
}

TEST(Edge, ElementsOfABodyAreCounted) {
  Fixture f;
  const std::string body =
      "{\"prompt\":[" + zeros(size_t{4} << 20).substr(0, (8 << 20) - 100) + "]}";
  f.post(kCompletions, "{}");
  TestResponse refused;
  const size_t grown = resident_growth([&] { refused = f.post(kCompletions, body); });
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("more than 524288 elements"), std::string::npos) << refused.body;
  fmt::print("a body of 8 MiB of [0,0,...]: {} MiB, the client's copy among them\n", grown >> 20);
  // Parsed it took 30 to 60 times its length.
  if (kMemoryIsTold) {
    EXPECT_LT(grown, 8 * body.size());
  }
}

// Arguments of tool calls are JSON in a string: their elements are counted over all of them.
TEST(Edge, ElementsOfToolArgumentsAreCountedTogether) {
  ServerOptions options;
  options.requests.json.element_count_max = 100;
  Fixture f({}, "x", options);
  const auto ask = [&](size_t calls) {
    Json list = Json::array();
    for (size_t i = 0; i < calls; ++i) {
      Json function = Json::object().set("name", "f");
      function.set("arguments", "{\"a\":[" + zeros(30) + "]}");
      list.push(Json::object().set("type", "function").set("function", std::move(function)));
    }
    Json message = Json::object().set("role", "assistant").set("content", "");
    message.set("tool_calls", std::move(list));
    const Json body = Json::object().set("messages", Json(Json::Array{std::move(message)}));
    return f.post(kChatPath, write_json(body));
  };
  EXPECT_EQ(ask(3).status, 200);
  const TestResponse refused = ask(4);
  EXPECT_EQ(refused.status, 400);
  EXPECT_EQ(refused.error_param(), "messages");
}

TEST(Edge, APromptOfTokenIdsMayFillTheContext) {
  Fixture f({.max_model_len = 600'000});
  const auto ask = [&](size_t count) {
    return f.post(kCompletions, "{\"max_tokens\":1,\"prompt\":[" + zeros(count) + "]}");
  };
  EXPECT_EQ(ask(599'999).status, 200);
  const TestResponse refused = ask(600'001);
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("this model's maximum context length is 600000"), std::string::npos)
      << refused.body;
}

// --- Bodies --------------------------------------------------------------------------------------

// A body whose sender may not send it is never read.
TEST(Edge, WhoCallsIsAskedBeforeTheBody) {
  ServerOptions options;
  options.api_keys = {"right"};
  Fixture f({}, "x", options);
  const auto told = [&](const std::string& head) {
    TestClient client(f.server->port());
    client.send(head);  // and no byte more
    const auto response = client.read_response();
    return response ? response->status : 0;
  };
  const std::string_view wrong = "Authorization: Bearer wrong\r\n";
  const std::string_view right = "Authorization: Bearer right\r\n";
  for (const std::string_view path : {kChatPath, kCompletions, std::string_view("/tokenize")}) {
    EXPECT_EQ(told(head_of(path, 1000)), 401);
    EXPECT_EQ(told(head_of(path, 1000, wrong)), 401);
  }
  EXPECT_EQ(told(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n",
                             kChatPath)),
            401);
  EXPECT_EQ(told(head_of("/nowhere", 1000, right)), 404);
  EXPECT_EQ(told(head_of("/v1/models", 1000, right)), 405);
  // Routes that look at no body keep none: they need no key.
  EXPECT_EQ(told(head_of("/ping", 1 << 20)), 413);
  EXPECT_EQ(f.post("/ping", "{}").status, 200);
  EXPECT_EQ(f.post(kChatPath, kChat, right).status, 200);
  // What is told at the head has the headers of other answers.
  TestClient client(f.server->port());
  client.send(head_of(kChatPath, 1000, "X-Request-Id: mine\r\n"));
  EXPECT_EQ(client.read_response()->headers.at("x-request-id"), "mine");
}

TEST(Edge, BodiesInMemoryAreBoundedInAll) {
  ServerOptions options;
  options.http.bodies_bytes_max = 1 << 20;
  Fixture f({}, "x", options);
  const std::string large = "{\"prompt\":\"" + std::string(300 << 10, 'x') + "\"}";
  {
    TestClient holder(f.server->port());
    holder.send(head_of(kCompletions, 1 << 20) + std::string(900 << 10, ' '));
    ASSERT_EQ(holder.receive(1, 1), "");  // it has come, and waits for the rest
    const TestResponse refused = f.post(kCompletions, large);
    ASSERT_EQ(refused.status, 503);
    EXPECT_EQ(refused.headers.at("retry-after"), "1");
    EXPECT_EQ(f.post(kChatPath, kChat).status, 200);  // there is room for it
  }
  EXPECT_TRUE(eventually([&] { return f.post(kCompletions, large).status == 400; }));  // too long
  for (int i = 0; i < 20; ++i)
    EXPECT_EQ(f.post(kCompletions, large).status, 400);  // all given back
}

// What is announced earns nothing, nor do bytes of long ago.
TEST(Edge, ABodyThatStopsComingIsGivenUp) {
  ServerOptions options;
  options.http.body_seconds_max = 1.5;
  Fixture f({}, "x", options);
  for (const size_t sent : {0, 1 << 20}) {
    TestClient client(f.server->port());
    client.send(head_of(kCompletions, 8 << 20) + std::string(sent, ' '));
    std::optional<TestResponse> told;
    const double seconds = seconds_of([&] { told = client.read_response(20); });
    ASSERT_TRUE(told) << sent;
    EXPECT_EQ(told->status, 408);
    EXPECT_LT(seconds, 10);
  }
  TestClient steady(f.server->port());
  const std::string body = "{\"prompt\":\"" + std::string(600 << 10, 'x') + "\"}";
  steady.send(head_of(kCompletions, body.size()));
  for (size_t at = 0; at < body.size(); at += 25 << 10) {
    std::this_thread::sleep_for(std::chrono::milliseconds(120));
    ASSERT_TRUE(steady.send(std::string_view(body).substr(at, 25 << 10)));
  }
  EXPECT_EQ(steady.read_response()->status, 400);  // read to its end, and too long for the model
}

// Two sockets that announced 200 MiB each kept everybody from /v1/files for an hour.
TEST(Edge, IdleUploadsDelayNobody) {
  const fs::path folder = fs::temp_directory_path() / fmt::format("headrace_idle_{}", ::getpid());
  ServerOptions options;
  options.http.connections_per_address_max = 400;
  options.batches.folder = folder;
  Fixture f({}, "x", options);
  std::vector<std::unique_ptr<TestClient>> idle;
  for (int i = 0; i < 256; ++i) {
    idle.push_back(std::make_unique<TestClient>(f.server->port()));
    idle.back()->send(
        head_of("/v1/files", 200 << 20, "Content-Type: multipart/form-data; boundary=b\r\n"));
  }
  const std::string form =
      "--b\r\nContent-Disposition: form-data; name=\"purpose\"\r\n\r\nbatch\r\n"
      "--b\r\nContent-Disposition: form-data; name=\"file\"; filename=\"a\"\r\n\r\n" +
      std::string(9 << 20, 'x') + "\r\n--b--\r\n";
  std::optional<TestResponse> uploaded;
  const double upload = seconds_of([&] {
    TestClient client(f.server->port());
    client.send(
        head_of("/v1/files", form.size(), "Content-Type: multipart/form-data; boundary=b\r\n") +
        form);
    uploaded = client.read_response(60);
  });
  ASSERT_TRUE(uploaded);
  EXPECT_EQ(uploaded->status, 200) << uploaded->body;
  const double chat = seconds_of([&] { EXPECT_EQ(f.post(kChatPath, kChat).status, 200); });
  fmt::print("beside 256 idle uploads: 9 MiB uploaded in {:.0f} ms, a chat answered in {:.1f} ms\n",
             upload * 1e3, chat * 1e3);
  EXPECT_LT(upload, 10);
  EXPECT_LT(chat, 5);
  fs::remove_all(folder);
}

// --- Exceptions ----------------------------------------------------------------------------------

TEST(Edge, AnExceptionIsOneRequests500) {
  Fixture f;
  f.model.engine->throw_when_submitted(true);
  for (int i = 0; i < 3; ++i) EXPECT_EQ(f.post(kChatPath, kChat).status, 500);
  f.model.engine->throw_when_submitted(false);
  EXPECT_EQ(f.post(kChatPath, kChat).status, 200);
  EXPECT_TRUE(eventually([&] { return at(f.get("/load").json(), "server_load").as_int() == 0; }));
}

// On an I/O thread, where no request is left that could be told.
TEST(Edge, AnExceptionAfterTheClientHasLeftEndsNothing) {
  Fixture f({.step_seconds = 0.005}, "");
  f.model.engine->throw_when_cancelled(true);
  for (int i = 0; i < 8; ++i) {
    TestClient client(f.server->port());
    const std::string body = R"({"prompt":"a","max_tokens":3000,"stream":true})";
    client.send(head_of(kCompletions, body.size()) + body);
    ASSERT_TRUE(eventually([&] { return f.model.engine->submitted() == i + 1; }));
    client.receive(20);
  }
  EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == 8; }));
  f.model.engine->throw_when_cancelled(false);
  EXPECT_EQ(f.get("/health").status, 200);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","max_tokens":3})").status, 200);
}

// --- Answers that are not streamed ---------------------------------------------------------------

ServerOptions one_mebibyte_answers() {
  ServerOptions options;
  options.requests.answer_bytes_max = 1 << 20;
  return options;
}

// 8 choices of 4,000 tokens with 20 log-probabilities each would be 55 MB.
TEST(Edge, WhatAnAnswerMayBecomeIsBoundedBeforeItIsMade) {
  Fixture f({}, "hello", one_mebibyte_answers());
  const char* const too_long[][2] = {
      {"/v1/completions", R"({"prompt":"a","n":8,"max_tokens":4000,"logprobs":20})"},
      {"/v1/completions", R"({"prompt":["a","b","c","d","e"],"max_tokens":4000})"},
      {"/v1/chat/completions", R"({"messages":[{"role":"user","content":"a"}],"max_tokens":4000,)"
                               R"("logprobs":true,"top_logprobs":20})"},
      {"/generate", R"({"text":"a","return_logprob":true,"top_logprobs_num":20,)"
                    R"("sampling_params":{"max_new_tokens":4000}})"},
      {"/completion", R"({"prompt":"a","n_predict":4000,"n_probs":20})"},
      {"/api/generate", R"({"prompt":"a","stream":false,"logprobs":true,"top_logprobs":20,)"
                        R"("options":{"num_predict":4000}})"},
  };
  for (const auto& [path, body] : too_long) {
    const TestResponse refused = f.post(path, body);
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_NE(refused.body.find("one that is not streamed has at most 1 MiB (--max-answer-bytes): "
                                "set stream, or ask for fewer"),
              refused.body.npos)
        << path << refused.body;
  }
  EXPECT_EQ(f.post(too_long[0][0], too_long[0][1]).error_param(), "stream");
  EXPECT_EQ(f.model.engine->submitted(), 0);
  // Echoed prompts count in each choice.
  const std::string echoed =
      fmt::format(R"({{"prompt":[{}],"echo":true,"logprobs":20,"max_tokens":0}})", zeros(3000));
  EXPECT_EQ(f.post(kCompletions, echoed).status, 400);
  // A stream has its own bounds, and what fits passes.
  EXPECT_EQ(
      f.post(kCompletions, R"({"prompt":"a","n":8,"max_tokens":4000,"logprobs":20,"stream":true})")
          .status,
      200);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","n":8,"max_tokens":50,"logprobs":20})").status,
            200);
}

// What names no length may end early: it is bounded by what it is.
TEST(Edge, AnAnswerThatGrowsTooLongEndsWithAnError) {
  Fixture f({.step_seconds = 0.0005}, "", one_mebibyte_answers());
  const TestResponse refused =
      f.post(kChatPath, R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,)"
                        R"("top_logprobs":20,"seed":1})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("longer than the 1 MiB"), refused.body.npos) << refused.body;
  EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == 1; }));
  Fixture short_one({}, "hello", one_mebibyte_answers());
  EXPECT_EQ(short_one
                .post(kChatPath, R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,)"
                                 R"("top_logprobs":20})")
                .status,
            200);
}

// The estimate is of what is written.
TEST(Edge, AnAnswerHasTheBytesThatItIsCountedFor) {
  Fixture f({}, "");
  const TestResponse chat =
      f.post(kChatPath, R"({"messages":[{"role":"user","content":"a"}],"logprobs":true,)"
                        R"("top_logprobs":20,"max_tokens":1000})");
  ASSERT_EQ(chat.status, 200);
  EXPECT_LT(chat.body.size(), 1100 * answer_token_bytes(20));
  EXPECT_GT(chat.body.size(), 500 * answer_token_bytes(20));
  const TestResponse words = f.post(kCompletions, R"({"prompt":"a","max_tokens":1000})");
  EXPECT_LT(words.body.size(), 1000 * answer_token_bytes(-1));
}

TEST(Edge, AnswersOfAllRequestsAreBounded) {
  ServerOptions options;
  options.requests.answers_bytes_max = 4 << 10;
  options.http.stalled_write_seconds_max = 60;
  Fixture f({.running_max = 8}, "", options);
  // An answer of 13 MB that nobody reads: more than any socket's buffer.
  TestClient slow(f.server->port(), 4096);
  const std::string body =
      fmt::format(R"({{"prompt":"{}","echo":true,"n":8,"max_tokens":1}})", std::string(100, 'a'));
  const std::string many = R"({"prompt":"a","max_tokens":1000,"logprobs":20,"n":8})";
  slow.send(head_of(kCompletions, many.size()) + many);
  const auto made = [&] {
    const FakeEngine& engine = *f.model.engine;
    return engine.submitted() == 1 && engine.stats().scheduler.running == 0;
  };
  ASSERT_TRUE(eventually(made));
  const auto refused = [&] { return f.post(kCompletions, body); };
  EXPECT_EQ(refused().status, 503);
  EXPECT_NE(refused().body.find("answers of other requests take all the memory"),
            std::string::npos);
  // A stream is not of them.
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","max_tokens":4,"stream":true})").status, 200);
  slow.close();
  EXPECT_TRUE(eventually([&] { return refused().status == 200; }));
}

}  // namespace
}  // namespace headrace::server_edge_test
