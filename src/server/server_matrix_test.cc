// Every row of the live route table against what clients do: methods, bodies, limits, hostile
// values of each field. A new route is in all of it by being a row.
#include <gtest/gtest.h>

#include <map>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/openapi.h"
#include "server/parameter_table_fixture.h"
#include "server/router.h"
#include "server/server_fixture.h"

namespace headrace::server_matrix_test {
namespace {

using Fixture = ServerFixture;

std::string path_of(const Route& route) {
  std::string path(route.path);
  if (const size_t id = path.find("{id}"); id != path.npos) path.replace(id, 4, "tiny");
  return path;
}

bool is_for_encoders(const Route& route) {
  return route.model == ModelClass::kEmbeds || route.model == ModelClass::kScores ||
         route.model == ModelClass::kClassifies || route.model == ModelClass::kEncodes;
}

// One request on a connection of its own; its head alone where `body` is not sent.
TestResponse ask(Fixture& f, std::string_view method, std::string_view path,
                 std::string_view headers = "", std::string_view body = "") {
  TestClient client(f.server->port());
  client.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\n{}\r\n{}", method, path, headers, body));
  return client.read_response().value_or(TestResponse{});
}

// --- Methods, paths, bodies ----------------------------------------------------------------------

TEST(Matrix, OtherMethodsAre405AndSayWhichAreTaken) {
  Fixture f;
  for (const Route& route : routes()) {
    for (std::string_view method : {"PUT", "PATCH", "OPTIONS"}) {
      const TestResponse answer = ask(f, method, path_of(route));
      EXPECT_EQ(answer.status, 405) << method << " " << route.path;
      EXPECT_NE(answer.headers.at("allow").find(route.method), std::string::npos) << route.path;
    }
  }
}

TEST(Matrix, HeadAnswersAsGetAndLeavesTheConnectionInOrder) {
  Fixture f;
  for (const Route& route : routes()) {
    if (route.method != "GET") continue;
    const TestResponse get = ask(f, "GET", path_of(route));
    TestClient client(f.server->port());
    client.send(fmt::format("HEAD {} HTTP/1.1\r\nHost: x\r\n\r\n", path_of(route)));
    std::string head;
    while (!head.ends_with("\r\n\r\n") && head.size() < 8192) head += client.receive(1);
    EXPECT_TRUE(head.starts_with(fmt::format("HTTP/1.1 {} ", get.status))) << route.path << head;
    if (head.find("Connection: close") != head.npos) continue;
    const auto next = client.get("/ping");
    ASSERT_TRUE(next) << route.path;
    EXPECT_EQ(next->body, R"({"status":"ok"})") << route.path;
  }
}

TEST(Matrix, ASlashAtTheEndIsAnotherPath) {
  Fixture f;
  for (const Route& route : routes()) {
    if (route.path == "/" || route.path.ends_with("{id}")) continue;
    const TestResponse answer = ask(f, route.method, path_of(route) + "/", "Content-Length: 0\r\n");
    // Behind /v1/responses/ it is the id of another route.
    EXPECT_TRUE(answer.status == 404 || answer.status == 405) << route.path << answer.status;
    EXPECT_FALSE(answer.body.empty()) << route.path;
  }
}

TEST(Matrix, WhatABodyMayBe) {
  Fixture f;
  for (const Route& route : routes()) {
    const std::string path = path_of(route);
    const auto with = [&](std::string_view headers) {
      return ask(f, route.method, path, headers).status;
    };
    if (route.model == ModelClass::kNotServed) continue;  // told by the head: openapi_test.cc
    switch (route.limit) {
      case LimitClass::kNoBody:
        EXPECT_EQ(with("Content-Length: 4097\r\n"), 413) << path;
        break;
      case LimitClass::kJson:
        EXPECT_EQ(with("Content-Length: 8388609\r\n"), 413) << path;
        EXPECT_EQ(with("Sec-Fetch-Site: cross-site\r\nContent-Type: text/plain\r\n"
                       "Content-Length: 2\r\n"),
                  415)
            << path;
        EXPECT_EQ(with("Content-Encoding: gzip\r\nContent-Length: 2\r\n"), 415) << path;
        break;
      case LimitClass::kUpload:
        EXPECT_EQ(with("Content-Length: 999999999\r\n"), 413) << path;
        EXPECT_EQ(with("Content-Encoding: zstd\r\nContent-Length: 2\r\n"), 415) << path;
        break;
    }
  }
}

// A JSON route reads its body in whatever pieces it comes, with a query behind its path, after
// asking whether to go on; the connection goes on behind it.
TEST(Matrix, JsonBodiesInEveryWrapping) {
  Fixture f({}, "hello world");
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson || route.path.find("{id}") != route.path.npos) continue;
    if (is_for_encoders(route)) continue;    // refused by the head: the model generates
    if (route.method == "DELETE") continue;  // what is deleted is gone the second time
    const std::string body(example_body(route));
    const std::string path(route.path);
    const int status = f.post(path, body).status;
    std::string chunks;
    for (size_t at = 0; at < body.size(); at += 7) {
      const std::string piece = body.substr(at, 7);
      chunks += fmt::format("{:x}\r\n{}\r\n", piece.size(), piece);
    }
    chunks += "0\r\n\r\n";
    TestClient client(f.server->port());
    client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n{}",
                            path, chunks));
    const auto chunked = client.read_response();
    ASSERT_TRUE(chunked) << path;
    EXPECT_EQ(chunked->status, status) << path << chunked->body;
    client.send(
        fmt::format("POST {}?api-version=2025&beta=true HTTP/1.1\r\nHost: x\r\n"
                    "Content-Length: {}\r\n\r\n{}",
                    path, body.size(), body));
    const auto queried = client.read_response();
    ASSERT_TRUE(queried) << path;
    EXPECT_EQ(queried->status, status) << path << queried->body;
    client.send(
        fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nExpect: 100-continue\r\n"
                    "Content-Length: {}\r\n\r\n",
                    path, body.size()));
    EXPECT_EQ(client.receive(25), "HTTP/1.1 100 Continue\r\n\r\n") << path;
    client.send(body);
    const auto continued = client.read_response();
    ASSERT_TRUE(continued) << path;
    EXPECT_EQ(continued->status, status) << path << continued->body;
    EXPECT_EQ(client.get("/ping")->status, 200) << path;
  }
}

// --- Hostile values ------------------------------------------------------------------------------

// Bodies in which one field of `schema`, or of an object in it, has a value of the table's.
void add_hostile(const Json& schema, const Json& good, std::string_view above,
                 std::vector<std::pair<std::string, Json>>& bodies) {
  const Json* properties = schema.find("properties");
  if (!properties) return;
  for (const auto& [name, field] : properties->as_object()) {
    for (const auto& [_, value] : hostile_values()) {
      Json body = good;
      bodies.emplace_back(name, body.set(name, value));
    }
    const Json* inside = good.find(name);
    if (!above.empty() || !inside || !inside->is_object()) continue;
    std::vector<std::pair<std::string, Json>> inner;
    add_hostile(field, *inside, name, inner);
    for (auto& [inner_name, object] : inner) {
      Json body = good;
      bodies.emplace_back(inner_name, body.set(name, std::move(object)));
    }
  }
}

std::vector<std::pair<std::string, Json>> hostile_bodies(const Json& operation) {
  std::vector<std::pair<std::string, Json>> bodies;
  const Json& content = at(at(operation, "requestBody"), "content");
  const Json& schema = at(at(content, "application/json"), "schema");
  const Json* any = schema.find("anyOf");
  const Json::Array forms = any ? any->as_array() : Json::Array{schema};
  for (const Json& form : forms) add_hostile(form, at(form, "example"), "", bodies);
  return bodies;
}

// Whether a refusal says what is wrong: by the field's name, or because a text is too long.
bool names_field(const std::string& message, const std::string& name) {
  const bool by_other_name =
      name == "min_new_tokens" && message.find("min_tokens") != std::string::npos;
  return by_other_name || message.find(name) != std::string::npos ||
         message.find("maximum context length is") != std::string::npos;
}

// What is named and is not there.
bool may_be_missing(const std::string& name) {
  return name == "model" || name == "previous_response_id";
}

// 200, or a 400 that names the field in the words of the family.
TEST(Matrix, HostileValuesOfEveryFieldOfEveryRoute) {
  Fixture f({}, "hi");
  TestClient client(f.server->port());
  const Json document = openapi_document();
  size_t refused = 0, taken = 0;
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson || route.model == ModelClass::kAnyTime) continue;
    if (is_for_encoders(route) || route.path.starts_with("/models/")) continue;
    if (route.path == "/infill") continue;  // the model cannot: tests/server/test_llama_cpp.py
    const Json& operation =
        at(at(at(document, "paths"), route.path), route.method == "DELETE" ? "delete" : "post");
    for (const auto& [name, body] : hostile_bodies(operation)) {
      const auto answer = client.post(route.path, body);
      ASSERT_TRUE(answer) << route.path << " " << write_json(body).substr(0, 200);
      if (answer->status == 200 || (answer->status == 404 && may_be_missing(name))) {
        ++taken;
        continue;
      }
      ++refused;
      ASSERT_EQ(answer->status, 400) << route.path << " " << name << " " << answer->body;
      const Json error = at(answer->json(), "error");
      const std::string message =
          error.is_string() ? error.as_string() : at(error, "message").as_string();
      EXPECT_TRUE(names_field(message, name)) << route.path << " " << name << ": " << message;
      EXPECT_EQ(message.find("xxxxx"), std::string::npos) << "input is echoed: " << route.path;
    }
  }
  EXPECT_GT(refused, 3000u);
  EXPECT_GT(taken, 500u);
}

// --- The fields of chats and completions that vLLM has, one by one
// ---------------------------------

struct FieldCase {
  std::string_view name;
  std::string_view good, wrong;  // JSON
  // Of the request that reaches the engine; null: it changes none.
  bool (*reaches)(const Request& request) = nullptr;
};

const FieldCase kFields[] = {
    {"frequency_penalty", "0.5", "3",
     [](const Request& r) { return r.sampling.frequency_penalty == 0.5f; }},
    {"presence_penalty", "0.5", "3",
     [](const Request& r) { return r.sampling.presence_penalty == 0.5f; }},
    {"logit_bias", R"({"5": 1})", R"({"x": 1})",
     [](const Request& r) { return r.sampling.logit_bias.size() == 1; }},
    {"max_tokens", "3", "-2", [](const Request& r) { return r.sampling.max_tokens == 3; }},
    {"n", "2", "0", [](const Request& r) { return r.sampling.n == 2; }},
    {"seed", "7", "0.5", [](const Request& r) { return r.sampling.seed == 7u; }},
    {"stop", R"(["x"])", "[1]"},
    {"stream", "false", "1"},
    {"temperature", "0", "-1", [](const Request& r) { return r.sampling.temperature == 0; }},
    {"top_p", "0.5", "2", [](const Request& r) { return r.sampling.top_p == 0.5f; }},
    {"user", R"("me")", "1", [](const Request& r) { return r.tenant == "me"; }},
    {"top_k", "3", "0.5", [](const Request& r) { return r.sampling.top_k == 3; }},
    {"min_p", "0.5", "2", [](const Request& r) { return r.sampling.min_p == 0.5f; }},
    {"repetition_penalty", "1.5", "0",
     [](const Request& r) { return r.sampling.repetition_penalty == 1.5f; }},
    {"length_penalty", "0.5", R"("x")"},  // needs use_beam_search
    {"use_beam_search", "true", R"("x")", [](const Request& r) { return r.beams.has_value(); }},
    {"stop_token_ids", "[5]", "[-1]",
     [](const Request& r) { return r.sampling.stop_token_ids.size() == 1; }},
    {"include_stop_str_in_output", "true", "1"},
    {"ignore_eos", "true", "1", [](const Request& r) { return r.sampling.ignore_eos; }},
    {"min_tokens", "1", "-1", [](const Request& r) { return r.sampling.min_tokens == 1; }},
    {"skip_special_tokens", "false", "1"},
    {"spaces_between_special_tokens", "false", "1"},
    {"truncate_prompt_tokens", "2", "0", [](const Request& r) { return r.prompt.size() == 2; }},
    {"prompt_logprobs", "1", R"("x")",
     [](const Request& r) { return r.sampling.prompt_logprobs == 1; }},
    {"allowed_token_ids", "[5]", R"("x")"},
    {"bad_words", R"(["x"])", "1"},
    {"structured_outputs", R"({"regex": "a+"})", "1"},
    {"response_format", R"({"type": "json_object"})", "1"},
    {"guided_json", R"({"type": "object"})", "1"},
    {"guided_regex", R"("a+")", "1"},
    {"guided_choice", R"(["a"])", "1"},
    {"guided_grammar", R"("root ::= \"a\"")", "1"},
    {"priority", "3", "0.5", [](const Request& r) { return r.priority == 3; }},
    {"request_id", R"("abc")", "1"},
    {"session_id", R"("abc")", "1"},
    {"return_tokens_as_token_ids", "true", "1"},
    {"return_token_ids", "true", "1"},
    {"cache_salt", R"("abc")", "1",
     [](const Request& r) { return r.cache_salt.find("abc") != std::string::npos; }},
    {"kv_transfer_params", R"({"a": 1})", "1"},
    {"vllm_xargs", R"({"a": 1})", "1"},
    {"repetition_detection", R"({"max_pattern_size": 3, "min_count": 2})", "1",
     [](const Request& r) { return r.sampling.loop.size_max == 3; }},
    {"stream_interval", "4", R"("x")"},
    {"add_special_tokens", "true", "1"},
    {"thinking_token_budget", "8", R"("x")"},
};

const FieldCase kChatOnly[] = {
    {"max_completion_tokens", "3", "0",
     [](const Request& r) { return r.sampling.max_tokens == 3; }},
    {"logprobs", "true", "1", [](const Request& r) { return r.sampling.logprobs == 0; }},
    {"top_logprobs", "2", R"("x")"},  // needs logprobs
    {"tools", R"([{"type": "function", "function": {"name": "f"}}])", "1"},
    {"tool_choice", R"("required")", "1"},
    {"parallel_tool_calls", "false", "1"},
    {"reasoning_effort", R"("high")", R"("x")"},
    {"include_reasoning", "false", "1"},
    {"echo", "true", "1"},
    {"add_generation_prompt", "false", "1"},
    {"continue_final_message", "true", "1"},
    {"documents", R"([{"text": "a"}])", "1"},
    {"chat_template", R"("{{ 1 }}")", "1"},
    {"chat_template_kwargs", R"({"a": 1})", "1"},
    {"mm_processor_kwargs", R"({"a": 1})", "1"},
};

const FieldCase kCompletionsOnly[] = {
    {"echo", "true", "1"},
    {"logprobs", "2", "true", [](const Request& r) { return r.sampling.logprobs == 2; }},
    {"suffix", R"("x")", "1"},
    {"prompt_embeds", R"("x")", "1"},
    {"best_of", "2", R"("x")"},  // needs use_beam_search
};

// It does what it says, or is refused by its name; a wrong value is refused by its name in any
// case.
void check_case(Fixture& f, std::string_view path, const Json& base, const FieldCase& field) {
  Json body = base;
  const TestResponse good = f.post(path, write_json(body.set(field.name, *parse_json(field.good))));
  if (good.status == 200) {
    EXPECT_TRUE(!field.reaches || field.reaches(f.model.engine->last_request())) << field.name;
  } else {
    EXPECT_EQ(good.status, 400) << field.name << good.body;
    EXPECT_FALSE(field.reaches) << field.name << " once worked: " << good.body;
    EXPECT_EQ(good.error_param(), field.name) << good.body;
  }
  body = base;
  const TestResponse wrong =
      f.post(path, write_json(body.set(field.name, *parse_json(field.wrong))));
  EXPECT_EQ(wrong.status, 400) << field.name << " = " << field.wrong;
  EXPECT_EQ(wrong.error_param(), field.name) << wrong.body;
}

TEST(Matrix, EveryFieldOfVllmWorksOrIsRefusedByItsName) {
  Fixture f({}, "hi");
  const Json chat = *parse_json(kChat);
  const Json completion = *parse_json(R"({"prompt": "abc"})");
  for (const FieldCase& field : kFields) {
    check_case(f, kChatPath, chat, field);
    check_case(f, kCompletions, completion, field);
  }
  for (const FieldCase& field : kChatOnly) check_case(f, kChatPath, chat, field);
  for (const FieldCase& field : kCompletionsOnly) check_case(f, kCompletions, completion, field);
}

}  // namespace
}  // namespace headrace::server_matrix_test
