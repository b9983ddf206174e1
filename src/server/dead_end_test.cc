// An answer whose form no token can continue: each protocol tells what there is of it, and that it
// ended badly, in the nearest of its own words.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::dead_end_test {
namespace {

constexpr std::string_view kHelloWorld = "hello world";  // what every request is answered with
constexpr std::string_view kAsked = R"("messages":[{"role":"user","content":"hi"}])";

// The answer to one request, which dies behind `tokens` bytes of "hello world".
TestResponse dying(ServerFixture& f, std::string_view path, std::string_view body, int tokens = 5) {
  f.model.engine->fail_emission(FinishReason::kDeadEnd, tokens);
  TestResponse response = f.post(path, body);
  EXPECT_EQ(response.status, 200) << path << response.body;
  return response;
}

std::string text_of_stream(const TestResponse& response, std::string_view member) {
  std::string text;
  for (const std::string& event : response.events()) {
    if (event == "[DONE]") continue;
    const Json json = parse_json(event).value();
    EXPECT_EQ(json.find("error"), nullptr) << event;
    const Json& delta = choice(json);
    const Json* said = member == "text" ? &delta : delta.find("delta");
    if (const Json* more = said->find(member)) text += more->as_string();
  }
  return text;
}

TEST(DeadEnd, OpenAiSaysErrorAndKeepsTheText) {
  ServerFixture f;
  const Json chat = dying(f, kChatPath, kChat).json();
  EXPECT_EQ(at(at(choice(chat), "message"), "content"), Json("hello"));
  EXPECT_EQ(at(choice(chat), "finish_reason"), Json("error"));
  EXPECT_EQ(at(at(chat, "usage"), "completion_tokens"), Json(5));
  const Json words = dying(f, kCompletions, R"({"prompt":"a"})").json();
  EXPECT_EQ(at(choice(words), "text"), Json("hello"));
  EXPECT_EQ(at(choice(words), "finish_reason"), Json("error"));
  const TestResponse streamed = dying(f, kChatPath, kChatStream);
  EXPECT_EQ(text_of_stream(streamed, "content"), "hello");
  EXPECT_NE(streamed.body.find(R"("finish_reason":"error")"), std::string::npos);
  EXPECT_TRUE(streamed.body.ends_with("data: [DONE]\n\n"));
  const TestResponse text = dying(f, kCompletions, R"({"prompt":"a","stream":true})");
  EXPECT_EQ(text_of_stream(text, "text"), "hello");
  EXPECT_NE(text.body.find(R"("finish_reason":"error")"), std::string::npos);
}

// Which of the choices died is a matter of when each came to the engine; one did, within its text.
void expect_one_died(const Json& answer, int choices) {
  int died = 0;
  for (int i = 0; i < choices; ++i) {
    const std::string& text = at(choice(answer, i), "text").as_string();
    if (at(choice(answer, i), "finish_reason") == Json("error")) {
      ++died;
      EXPECT_LT(text.size(), kHelloWorld.size());
      EXPECT_TRUE(kHelloWorld.starts_with(text)) << text;
    } else {
      EXPECT_EQ(text, kHelloWorld);
      EXPECT_EQ(at(choice(answer, i), "finish_reason"), Json("stop"));
    }
  }
  EXPECT_EQ(died, 1);
}

TEST(DeadEnd, TheOtherChoicesAreUnharmed) {
  ServerFixture f;
  expect_one_died(dying(f, kCompletions, R"({"prompt":"a","n":3})", 3 * 2 + 1).json(), 3);
  expect_one_died(dying(f, kCompletions, R"({"prompt":["a","b"]})", 2 * 2 + 1).json(), 2);
  expect_one_died(dying(f, kCompletions, R"({"prompt":"a","n":2})", 0).json(), 2);
  EXPECT_NE(f.get("/metrics").body.find(R"(finished_reason="error")"), std::string::npos);
}

TEST(DeadEnd, AResponseHasFailedAndHasItsOutput) {
  ServerFixture f;
  const auto expect_failed = [](const Json& response) {
    EXPECT_EQ(at(response, "status"), Json("failed"));
    EXPECT_EQ(at(at(response, "error"), "code"), Json("server_error"));
    EXPECT_TRUE(at(response, "incomplete_details").is_null());
    const Json& message = at(response, "output").as_array().at(0);
    EXPECT_EQ(at(message, "status"), Json("incomplete"));
    EXPECT_EQ(at(at(message, "content").as_array().at(0), "text"), Json("hello"));
  };
  expect_failed(dying(f, "/v1/responses", R"({"input":"hi"})").json());
  const std::string stream = dying(f, "/v1/responses", R"({"input":"hi","stream":true})").body;
  const size_t data = stream.rfind("data: ") + 6;
  const Json last = parse_json(stream.substr(data, stream.find("\n", data) - data)).value();
  EXPECT_EQ(at(last, "type"), Json("response.failed"));
  expect_failed(at(last, "response"));
}

TEST(DeadEnd, AnthropicSaysRefusal) {
  ServerFixture f;
  const std::string body = fmt::format(R"({{"max_tokens":50,{}}})", kAsked);
  const Json whole = dying(f, "/v1/messages", body).json();
  EXPECT_EQ(at(whole, "stop_reason"), Json("refusal"));
  EXPECT_EQ(at(at(whole, "content").as_array().at(0), "text"), Json("hello"));
  const std::string stream = fmt::format(R"({{"max_tokens":50,"stream":true,{}}})", kAsked);
  const TestResponse streamed = dying(f, "/v1/messages", stream);
  EXPECT_NE(streamed.body.find(R"("stop_reason":"refusal")"), std::string::npos);
  EXPECT_NE(streamed.body.find("message_stop"), std::string::npos);
}

TEST(DeadEnd, OllamaAndTheNativeRoutesOfOthers) {
  ServerFixture f;
  const Json ollama =
      dying(f, "/api/generate", R"({"model":"tiny","prompt":"hi","stream":false})").json();
  EXPECT_EQ(at(ollama, "response"), Json("hello"));
  EXPECT_EQ(at(ollama, "done_reason"), Json("error"));
  const TestResponse lines = dying(f, "/api/chat", fmt::format(R"({{"model":"tiny",{}}})", kAsked));
  EXPECT_NE(lines.body.find(R"("done_reason":"error")"), std::string::npos);

  const Json llama = dying(f, "/completion", R"({"prompt":"hi"})").json();
  EXPECT_EQ(at(llama, "content"), Json("hello"));
  EXPECT_EQ(at(llama, "stop_type"), Json("none"));

  const Json sglang = dying(f, "/generate", R"({"text":"hi"})").json();
  EXPECT_EQ(at(sglang, "text"), Json("hello"));
  EXPECT_EQ(at(at(at(sglang, "meta_info"), "finish_reason"), "type"), Json("abort"));
  const TestResponse streamed = dying(f, "/generate", R"({"text":"hi","stream":true})");
  EXPECT_NE(streamed.body.find(R"("type":"abort")"), std::string::npos);

  const Json tgi = dying(f, "/generate", R"({"inputs":"hi","parameters":{"details":true}})").json();
  EXPECT_EQ(at(tgi, "generated_text"), Json("hello"));
  EXPECT_EQ(at(at(tgi, "details"), "finish_reason"), Json("length"));
}

}  // namespace
}  // namespace headrace::dead_end_test
