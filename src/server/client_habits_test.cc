// What clients send that nobody reads in a specification: other servers take it, or answer with the
// words that the client looks for.
#include <gtest/gtest.h>

#include <string>
#include <string_view>

#include "server/generation_request.h"
#include "server/parameter_table_fixture.h"
#include "server/server_fixture.h"

namespace headrace::client_habits_test {
namespace {

FieldContext with_forms() {
  FieldContext context = kContext;
  context.takes_forms = context.reads_calls = true;
  return context;
}

Result<ChatRequest> chat(std::string_view messages, std::string_view more = "") {
  return parse_chat_request(
      *parse_json("{\"messages\":" + std::string(messages) + std::string(more) + "}"),
      with_forms());
}
constexpr std::string_view kHi = R"([{"role":"user","content":"hi"}])";

// OpenAI's own client sends an answer without words back as it came.
TEST(ClientHabits, AnAnswerWithoutWordsComesBackAsNull) {
  for (const std::string_view assistant :
       {R"({"role":"assistant","content":null})", R"({"role":"assistant","refusal":"no"})",
        R"({"role":"assistant","content":null,"tool_calls":[]})"}) {
    const auto request = chat("[{\"role\":\"user\",\"content\":\"a\"}," + std::string(assistant) +
                              ",{\"role\":\"user\",\"content\":\"b\"}]");
    ASSERT_TRUE(request.ok()) << assistant << request.status().message();
    EXPECT_EQ(*request->messages.as_array()[1].find("content"), Json("")) << assistant;
  }
  EXPECT_EQ(chat(R"([{"role":"user"}])").status().message(), "messages[0].content is missing");
}

TEST(ClientHabits, PartsMayBeStringsOrInputTexts) {
  const auto request =
      chat(R"([{"role":"user","content":["a",{"type":"input_text","text":"b"}]}])");
  ASSERT_TRUE(request.ok()) << request.status().message();
  EXPECT_EQ(*request->messages.as_array()[0].find("content"), Json("a\nb"));
}

// LM Studio's examples ask so, as llama.cpp's do.
TEST(ClientHabits, ALengthBelowZeroIsWhatTheContextLeaves) {
  for (const char* name : {"max_tokens", "max_completion_tokens", "n_predict"}) {
    const auto request = chat(kHi, std::string(",\"") + name + "\":-1");
    ASSERT_TRUE(request.ok()) << request.status().message();
    EXPECT_TRUE(request->settings.to_context_end);
    EXPECT_FALSE(request->settings.max_tokens.has_value());
    EXPECT_FALSE(chat(kHi, std::string(",\"") + name + "\":-3").ok());
  }
}

TEST(ClientHabits, ABodyMayBeginWithAByteOrderMark) {
  ServerFixture f;
  EXPECT_EQ(f.post("/v1/completions", "\xef\xbb\xbf{\"prompt\":\"a\",\"max_tokens\":1}").status,
            200);
}

TEST(ClientHabits, ErrorsOfTheWireSayWhatToDo) {
  const auto answer_to = [](std::string_view bytes) {
    ServerFixture f;
    TestClient client(f.server->port());
    client.send(std::string(bytes));
    const auto response = client.read_response();
    return response ? response->body : std::string();
  };
  EXPECT_NE(answer_to("\x16\x03\x01").find("not TLS: use http://"), std::string::npos);
  EXPECT_NE(answer_to("POST /v1/completions HTTP/1.1\r\nHost: x\r\nContent-Length: 2\r\n"
                      "Content-Length: 2\r\n\r\n{}")
                .find("send Content-Length once"),
            std::string::npos);
}

TEST(ClientHabits, OneFormMayComeByTwoNames) {
  const std::string one = R"(,"guided_regex":"a+","structured_outputs":{"regex":"a+"})";
  EXPECT_TRUE(chat(kHi, one).ok()) << chat(kHi, one).status().message();
  const std::string two = R"(,"guided_regex":"a+","structured_outputs":{"regex":"b+"})";
  EXPECT_NE(chat(kHi, two).status().message().find("both ask for a form"), std::string::npos);
}

TEST(ClientHabits, FormsOfTextGenerationInferenceHaveAValue) {
  using Kind = AnswerForm::Kind;
  const auto json = chat(kHi, R"(,"response_format":{"type":"json","value":{"type":"integer"}})");
  ASSERT_TRUE(json.ok()) << json.status().message();
  EXPECT_EQ(json->settings.form.kind, Kind::kJsonSchema);
  const auto regex = chat(kHi, R"(,"response_format":{"type":"regex","value":"a+"})");
  ASSERT_TRUE(regex.ok()) << regex.status().message();
  EXPECT_EQ(regex->settings.form.kind, Kind::kRegex);
}

TEST(ClientHabits, AnyIsRequiredAndTheBestOfAllAreAll) {
  const std::string tools = R"(,"tools":[{"type":"function","function":{"name":"f"}}])";
  const auto any = chat(kHi, tools + R"(,"tool_choice":"any")");
  const auto required = chat(kHi, tools + R"(,"tool_choice":"required")");
  EXPECT_EQ(any.ok(), required.ok()) << any.status().message();
  const auto all =
      parse_completion_request(*parse_json(R"({"prompt":"a","n":2,"best_of":2})"), with_forms());
  EXPECT_TRUE(all.ok()) << all.status().message();
}

// The client's runner of tools goes on without threads where these words come.
TEST(ClientHabits, ThreadsOfMessagesAreRefusedInTheWordsOfTheirClient) {
  ServerFixture f;
  const TestResponse response =
      f.post("/v1/messages", R"({"max_tokens":9,"messages":[{"role":"user","content":"hi"}],)"
                             R"("thread":{"type":"create"}})");
  EXPECT_EQ(response.status, 400);
  const Json error = *parse_json(response.body)->find("error");
  EXPECT_EQ(*error.find("type"), Json("invalid_request_error"));
  EXPECT_EQ(*error.find("message"), Json("thread is not supported: send all messages"));
  EXPECT_EQ(write_json(*error.find("details")),
            R"({"error_code":"thread_unsupported_request","unsupported":["thread"]})");
}

// Libraries begin to trim, or ask another model, where they find one of these.
TEST(ClientHabits, ALongPromptIsCalledSo) {
  ServerFixture f;
  std::string text;
  for (int i = 0; i < 5000; ++i) text += "a b ";
  for (const char* route : {"/v1/chat/completions", "/v1/messages"}) {
    const TestResponse response =
        f.post(route, R"({"max_tokens":9,"messages":[{"role":"user","content":")" + text + "\"}]}");
    EXPECT_EQ(response.status, 400);
    for (const char* words : {"prompt is too long", "this model's maximum context length is"}) {
      EXPECT_NE(response.body.find(words), std::string::npos) << response.body;
    }
  }
}

}  // namespace
}  // namespace headrace::client_habits_test
