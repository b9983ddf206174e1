// What clients of the other servers expect beside the answers: names, statuses, headers, log lines
// and streams that stay alive.
#include <gtest/gtest.h>

#include <algorithm>
#include <string>

#include <fmt/format.h>

#include "base/log.h"
#include "server/server_fixture.h"

namespace headrace::server_conventions_test {
namespace {

using Fixture = ServerFixture;

std::string post_head_and_body(std::string_view path, std::string_view headers,
                               std::string_view body) {
  return fmt::format("POST {} HTTP/1.1\r\nHost: x\r\n{}Content-Length: {}\r\n\r\n{}", path, headers,
                     body.size(), body);
}

TEST(ServerConventions, OtherNamesAreServedAndNotListed) {
  Fixture f({}, "x", {}, false);
  ServedModel model = f.model.served();
  model.names = {"tiny"};
  model.other_names = {"/models/tiny.gguf"};
  ASSERT_TRUE(f.server->set_ready(std::move(model)).ok());
  const Json list = f.get("/v1/models").json();
  ASSERT_EQ(at(list, "data").as_array().size(), 1u);
  EXPECT_EQ(at(at(list, "data").as_array()[0], "id").as_string(), "tiny");
  EXPECT_EQ(f.post(kCompletions, R"({"model":"/models/tiny.gguf","prompt":"a"})").status, 200);
  EXPECT_EQ(f.get("/v1/models/%2Fmodels%2Ftiny.gguf").status, 200);
}

// A request that hits its template's bounds hits them again however often it comes.
TEST(ServerConventions, AChatOverTheTemplatesBudgetIsA400) {
  Fixture f({}, "x", {}, false);
  const auto chat_template = ChatTemplate::compile(
      "{% for message in messages %}{{ message['content'] }}{% endfor %}", {.steps_max = 20});
  ASSERT_TRUE(chat_template.ok());
  ServedModel model = f.model.served();
  model.chat_template = &*chat_template;
  ASSERT_TRUE(f.server->set_ready(std::move(model)).ok());
  std::string messages = R"({"role":"user","content":"a"})";
  for (int i = 0; i < 40; ++i) messages += R"(,{"role":"user","content":"a"})";
  const std::string body = R"({"messages":[)" + messages + "]}";
  for (const char* path : {"/v1/chat/completions", "/tokenize", "/apply-template"}) {
    const TestResponse refused = f.post(path, body);
    EXPECT_EQ(refused.status, 400) << path << refused.body;
    EXPECT_EQ(refused.headers.count("retry-after"), 0u) << path;
    EXPECT_NE(refused.body.find("takes more than 20 steps"), refused.body.npos) << refused.body;
  }
}

TEST(ServerConventions, ReasoningEffortWhereTheTemplateReadsIt) {
  Fixture plain;
  const auto ask = [](Fixture& f, std::string_view effort) {
    return f.post(kChatPath, fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}],)"
                                         R"("reasoning_effort":"{}"}})",
                                         effort));
  };
  EXPECT_EQ(ask(plain, "none").status, 200);  // it does not reason as it is
  EXPECT_EQ(ask(plain, "high").status, 400);
  EXPECT_EQ(ask(plain, "high").error_param(), "reasoning_effort");
  EXPECT_EQ(ask(plain, "much").error_param(), "reasoning_effort");

  Fixture thinking({}, "x", {}, false);
  const auto chat_template = ChatTemplate::compile(
      "{{ reasoning_effort }}{% if enable_thinking is defined and not enable_thinking %}off"
      "{% endif %}");
  ASSERT_TRUE(chat_template.ok());
  ServedModel model = thinking.model.served();
  model.chat_template = &*chat_template;
  ASSERT_TRUE(thinking.server->set_ready(std::move(model)).ok());
  const auto prompt = [&](std::string_view effort) {
    EXPECT_EQ(ask(thinking, effort).status, 200);
    return thinking.model.tokenizer->decode(thinking.model.engine->last_request().prompt, false);
  };
  EXPECT_EQ(prompt("high"), "high");
  EXPECT_EQ(prompt("none"), "noneoff");
}

TEST(ServerConventions, NPredictMinusOneRunsToTheContextsEnd) {
  Fixture f;
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":[5,6],"n_predict":-1})").status, 200);
  EXPECT_EQ(f.model.engine->last_request().sampling.max_tokens, 4096 - 2);
}

// Anthropic's clients say which version of their API they mean.
TEST(ServerConventions, ModelsAreListedAsAnthropicDoes) {
  Fixture f;
  const std::string_view version = "anthropic-version: 2023-06-01\r\n";
  const Json list = f.get("/v1/models", version).json();
  const Json& first = at(list, "data").as_array().at(0);
  EXPECT_EQ(at(first, "type"), Json("model"));
  EXPECT_EQ(at(first, "display_name"), at(first, "id"));
  EXPECT_NE(at(first, "created_at").as_string().find('T'), std::string::npos);
  EXPECT_EQ(at(list, "has_more"), Json(false));
  EXPECT_EQ(at(list, "first_id"), at(first, "id"));
  EXPECT_EQ(at(list, "last_id"), at(at(list, "data").as_array().back(), "id"));
  EXPECT_EQ(at(f.get("/v1/models/tiny", version).json(), "type"), Json("model"));
  EXPECT_EQ(at(f.get("/v1/models").json(), "object"), Json("list"));
}

TEST(ServerConventions, ChatsTellTheirTier) {
  Fixture f;
  const auto ask = [&](std::string_view fields) {
    return f.post(kChatPath,
                  fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}]{}}})", fields));
  };
  EXPECT_EQ(at(ask("").json(), "service_tier"), Json("default"));
  EXPECT_EQ(at(ask(R"(,"service_tier":"auto")").json(), "service_tier"), Json("default"));
  EXPECT_EQ(at(ask(R"(,"service_tier":"flex")").json(), "service_tier"), Json("flex"));
  EXPECT_EQ(ask(R"(,"stream":true)").body.find("service_tier"), std::string::npos);
  EXPECT_NE(ask(R"(,"stream":true,"service_tier":"auto")").body.find(R"("service_tier":"default")"),
            std::string::npos);
}

// What an operator says for requests that do not.
TEST(ServerConventions, DefaultsOfTheServer) {
  ServerOptions options;
  options.force_usage = true;
  Fixture f({}, "x", options, false);
  const auto chat_template =
      ChatTemplate::compile("{{ enable_thinking }}{{ messages[0]['content'] }}");
  ASSERT_TRUE(chat_template.ok());
  ServedModel model = f.model.served();
  model.chat_template = &*chat_template;
  model.answer_tokens = 7;
  model.sampling.seed = 11;
  model.template_defaults = Json::object().set("enable_thinking", false);
  ASSERT_TRUE(f.server->set_ready(std::move(model)).ok());
  const auto ask = [&](std::string_view fields) {
    EXPECT_EQ(f.post(kChatPath,
                     fmt::format(R"({{"messages":[{{"role":"user","content":"a"}}]{}}})", fields))
                  .status,
              200)
        << fields;
    return f.model.engine->last_request();
  };
  const auto prompt = [&](const Request& request) {
    return f.model.tokenizer->decode(request.prompt, false);
  };
  EXPECT_EQ(prompt(ask("")), "Falsea");
  EXPECT_EQ(prompt(ask(R"(,"chat_template_kwargs":{"enable_thinking":true})")), "Truea");
  const std::string turns = R"({"messages":[{"role":"user","content":"a"}]})";
  EXPECT_EQ(at(f.post("/apply-template", turns).json(), "prompt"), Json("Falsea"));
  EXPECT_EQ(ask("").sampling.max_tokens, 7);
  EXPECT_EQ(ask(R"(,"max_tokens":9)").sampling.max_tokens, 9);
  EXPECT_GT(ask(R"(,"n_predict":-1)").sampling.max_tokens, 1000);
  EXPECT_EQ(ask("").sampling.seed, 11u);
  EXPECT_EQ(ask(R"(,"seed":3)").sampling.seed, 3u);
  EXPECT_NE(ask(R"(,"seed":-1)").sampling.seed, 11u);
  ASSERT_EQ(f.post(kCompletions, R"({"prompt":"a"})").status, 200);
  EXPECT_EQ(f.model.engine->last_request().sampling.max_tokens, 7);
  ASSERT_EQ(f.post("/completion", R"({"prompt":"a"})").status, 200);
  EXPECT_EQ(f.model.engine->last_request().sampling.max_tokens, 7);
  EXPECT_NE(f.post(kCompletions, R"({"prompt":"a","stream":true})").body.find("\"usage\""),
            std::string::npos);
}

TEST(ServerConventions, RoutesOfOthersThatLookLikeIds) {
  Fixture f;
  const TestResponse count = f.post("/v1/responses/input_tokens", R"({"input":"hi"})");
  ASSERT_EQ(count.status, 200) << count.body;
  EXPECT_EQ(at(count.json(), "object"), Json("response.input_tokens"));
  ASSERT_EQ(f.post("/v1/responses", R"({"input":"hi"})").status, 200);
  EXPECT_EQ(at(count.json(), "input_tokens").as_int(),
            static_cast<int64_t>(f.model.engine->last_request().prompt.size()));
  EXPECT_EQ(f.post("/v1/responses/input_tokens", "{}").error_param(), "input");
  EXPECT_EQ(f.post("/v1/responses/compact", "{}").status, 400);
  EXPECT_EQ(f.get("/v1/vector_stores").status, 400);
  const Json info = f.get("/info").json();
  EXPECT_EQ(at(info, "model_id"), Json("tiny"));
  EXPECT_EQ(at(info, "max_total_tokens"), Json(4096));
  EXPECT_EQ(f.post("/api/show", "{}").status, 400);
}

TEST(ServerConventions, APromptIsTruncatedFromItsBegin) {
  Fixture f;
  const auto prompt_of = [&](std::string_view path, std::string_view body) {
    const TestResponse answer = f.post(path, body);
    EXPECT_EQ(answer.status, 200) << answer.body;
    return f.model.engine->last_request().prompt;
  };
  const std::vector<TokenId> last = {7, 8};
  EXPECT_EQ(prompt_of(kCompletions, R"({"prompt":[5,6,7,8],"truncate_prompt_tokens":2})"), last);
  EXPECT_EQ(prompt_of(kCompletions, R"({"prompt":[7,8],"truncate_prompt_tokens":3})"), last);
  const std::string long_text(40 * 4096, 'a');  // of five contexts: a token has up to 8 of them
  const std::string chat = fmt::format(
      R"({{"messages":[{{"role":"user","content":"{}"}}],"max_tokens":96,"truncate_prompt_tokens":-1}})",
      long_text);
  EXPECT_EQ(prompt_of(kChatPath, chat).size(), 4000u);
  for (const char* body : {R"({"prompt":"a","truncate_prompt_tokens":0})",
                           R"({"prompt":"a","truncate_prompt_tokens":4097})",
                           R"({"prompt":"a","truncate_prompt_tokens":1,"echo":true})"}) {
    EXPECT_EQ(f.post(kCompletions, body).error_param(), "truncate_prompt_tokens") << body;
  }
}

TEST(ServerConventions, PromptLogprobsAreToldAsVllmTellsThem) {
  Fixture f;
  const Json echo =
      f.post(kCompletions, R"({"prompt":[5,6,7],"max_tokens":0,"echo":true,"logprobs":2})").json();
  const Json::Array& values = at(at(choice(echo), "logprobs"), "token_logprobs").as_array();
  const Json answer =
      f.post(kCompletions, R"({"prompt":[5,6,7],"max_tokens":2,"n":2,"prompt_logprobs":2})").json();
  for (size_t i : {0u, 1u}) {
    const Json::Array& told = at(choice(answer, i), "prompt_logprobs").as_array();
    ASSERT_EQ(told.size(), 3u);
    EXPECT_TRUE(told[0].is_null());
    EXPECT_EQ(at(at(told[1], "6"), "logprob"), values[1]);
    EXPECT_EQ(at(at(told[2], "7"), "logprob"), values[2]);
    EXPECT_EQ(told[2].as_object().size(), 3u);  // the two best, and the prompt's own
    EXPECT_TRUE(at(at(told[2], "7"), "rank").is_null());
    EXPECT_EQ(at(told[2].as_object()[0].second, "rank").as_int(), 1);
  }
  const Json chat =
      f.post(kChatPath, R"({"messages":[{"role":"user","content":"a"}],"prompt_logprobs":0})")
          .json();
  EXPECT_EQ(static_cast<int64_t>(at(chat, "prompt_logprobs").as_array().size()),
            at(at(chat, "usage"), "prompt_tokens").as_int());
  for (const char* body : {R"({"prompt":"a","prompt_logprobs":21})",
                           R"({"prompt":"a","prompt_logprobs":1,"stream":true})",
                           R"({"prompt":"a","prompt_logprobs":1,"echo":true})"}) {
    EXPECT_EQ(f.post(kCompletions, body).error_param(), "prompt_logprobs") << body;
  }
}

TEST(ServerConventions, ARequestMayNameItsId) {
  Fixture f;
  EXPECT_EQ(at(f.post(kCompletions, R"({"prompt":"a","request_id":"abc"})").json(), "id"),
            Json("cmpl-abc"));
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","request_id":"a b"})").error_param(),
            "request_id");
}

TEST(ServerConventions, ABegunAnswerGoesOn) {
  Fixture f;
  constexpr std::string_view kBegun =
      R"({"messages":[{"role":"user","content":"a"},{"role":"assistant","content":"b "}],)"
      R"("continue_final_message":true)";
  EXPECT_EQ(f.post(kChatPath, fmt::format("{}}}", kBegun)).status, 200);
  const auto& prompt = f.model.engine->last_request().prompt;
  EXPECT_EQ(f.model.tokenizer->decode(prompt, false),
            "<|im_start|>user\na<|im_end|>\n<|im_start|>assistant\nb ");
  const TestResponse both =
      f.post(kChatPath, fmt::format(R"({},"add_generation_prompt":true}})", kBegun));
  EXPECT_EQ(both.error_param(), "continue_final_message");
}

TEST(ServerConventions, AccessLogHasALineForEachRequestAndNoPrompt) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  {
    Fixture f;
    f.get("/health");
    f.get("/v1/models?key=secret", "X-Request-Id: first\r\n");
    f.post(kChatPath, R"({"messages":[{"role":"user","content":"private words"}]})",
           "X-Request-Id: whole\r\n");
    f.post(kChatPath, kChatStream, "X-Request-Id: stream\r\n");
    f.post(kCompletions, R"({"prompt":1})", "X-Request-Id: bad\r\n");
    f.model.engine->set_paused(true);
    TestClient leaves(f.server->port());
    leaves.send(post_head_and_body(kChatPath, "X-Request-Id: left\r\n", kChat));
    EXPECT_TRUE(eventually([&] { return f.model.engine->submitted() == 3; }));
    leaves.close();
    EXPECT_TRUE(eventually([&] { return f.model.engine->cancelled() == 1; }));
  }
  const std::string log = testing::internal::GetCapturedStderr();
  set_log_level(before);
  const auto line = [&](std::string_view id) {
    const size_t at = log.find(fmt::format("id={}\n", id));
    if (at == log.npos) return "no line of " + std::string(id) + " in\n" + log;
    const size_t begin = log.rfind('\n', at) + 1;  // npos + 1: the first line
    return log.substr(begin, at - begin);
  };
  EXPECT_NE(line("first").find(" info GET /v1/models 200 "), log.npos) << line("first");
  EXPECT_NE(line("whole").find(" info POST /v1/chat/completions 200 "), log.npos) << line("whole");
  EXPECT_NE(line("stream").find(" ms "), log.npos) << line("stream");
  EXPECT_NE(line("bad").find(" 400 "), log.npos) << line("bad");
  EXPECT_NE(line("left").find(" 499 "), log.npos) << line("left");
  EXPECT_EQ(std::count(log.begin(), log.end(), '\n'), 5) << log;  // none of the probe
  for (const char* secret : {"private", "words", "secret", "hello"}) {
    EXPECT_EQ(log.find(secret), log.npos) << log;
  }
}

TEST(ServerConventions, AccessLogCanBeSwitchedOff) {
  const LogLevel before = log_level();
  set_log_level(LogLevel::kInfo);
  testing::internal::CaptureStderr();
  {
    ServerOptions options;
    options.access_log = false;
    Fixture f({}, "x", options);
    EXPECT_EQ(f.get("/v1/models").status, 200);
  }
  EXPECT_EQ(testing::internal::GetCapturedStderr(), "");
  set_log_level(before);
}

TEST(ServerConventions, APreflightOfOpenaisClientIsAnswered) {
  ServerOptions options;
  options.allowed_origins = {"https://app.example"};
  Fixture f({}, "x", options);
  const auto preflight = [&](std::string_view origin, std::string_view asked) {
    TestClient client(f.server->port());
    client.send(
        fmt::format("OPTIONS {} HTTP/1.1\r\nHost: x\r\nOrigin: {}\r\n"
                    "Access-Control-Request-Method: POST\r\n"
                    "Access-Control-Request-Headers: {}\r\n\r\n",
                    kChatPath, origin, asked));
    return *client.read_response();
  };
  const std::string asked =
      "authorization,content-type,x-stainless-arch,x-stainless-lang,x-stainless-retry-count";
  TestResponse answer = preflight("https://app.example", asked);
  EXPECT_EQ(answer.status, 200);
  EXPECT_EQ(answer.headers.at("access-control-allow-headers"), asked);
  EXPECT_EQ(answer.headers.at("access-control-allow-origin"), "https://app.example");
  EXPECT_EQ(answer.headers.at("access-control-max-age"), "7200");
  answer = preflight("https://app.example", "bad(header)");
  EXPECT_EQ(answer.headers.at("access-control-allow-headers"),
            "Authorization, Content-Type, X-API-Key, X-Request-Id");
  EXPECT_EQ(preflight("https://evil.example", asked).headers.count("access-control-allow-headers"),
            0u);
  answer = f.get("/v1/models", "Origin: https://app.example\r\n");
  const std::string exposed = answer.headers.at("access-control-expose-headers");
  for (const char* name : {"X-Request-Id", "Retry-After", "x-ratelimit-remaining-tokens"}) {
    EXPECT_NE(exposed.find(name), exposed.npos) << exposed;
  }
  EXPECT_EQ(f.get("/v1/models").headers.count("access-control-expose-headers"), 0u);
}

// A proxy gives up on what is silent for a minute; a long prompt takes longer.
TEST(ServerConventions, AStreamThatWaitsForItsFirstTokenIsKeptAlive) {
  ServerOptions options;
  options.requests.ping_seconds = 0.05;
  Fixture f({}, "hello", options);
  f.model.engine->set_paused(true);  // behind the queue, and before the first token
  TestClient client(f.server->port());
  client.send(post_head_and_body(kChatPath, "", kChatStream));
  std::string begin;
  while (begin.find(": keep-alive\n\n") == begin.npos && begin.size() < 4096) {
    const std::string more = client.receive(1);
    ASSERT_EQ(more.size(), 1u) << begin;
    begin += more;
  }
  EXPECT_EQ(begin.find("HTTP/1.1 200 OK\r\n"), 0u) << begin;
  EXPECT_NE(begin.find("text/event-stream"), begin.npos) << begin;
  EXPECT_EQ(begin.find("data:"), begin.npos) << begin;
  f.model.engine->set_paused(false);
  std::string rest;
  while (rest.find("data: [DONE]") == rest.npos && rest.size() < 65536) {
    const std::string more = client.receive(1);
    ASSERT_EQ(more.size(), 1u) << rest;
    rest += more;
  }
  EXPECT_NE(rest.find("\"role\":\"assistant\""), rest.npos) << rest;
  EXPECT_NE(rest.find("\"finish_reason\":\"stop\""), rest.npos) << rest;
}

TEST(ServerConventions, StreamsArePingedOnlyWhenAsked) {
  ServerOptions options;
  options.requests.ping_seconds = 0;
  Fixture f({.step_seconds = 0.05}, "hello", options);
  const TestResponse response = f.post(kChatPath, kChatStream);
  EXPECT_EQ(response.body.find(": keep-alive"), response.body.npos) << response.body;
  EXPECT_EQ(response.events().back(), "[DONE]");
}

// Nobody has promised a stream to who waits in the queue.
TEST(ServerConventions, ARefusalInTheQueueIsAStatusOfAStreamToo) {
  ServerOptions options;
  options.requests.queue_seconds_max = 0.2;
  options.requests.ping_seconds = 0.2;
  Fixture f({.running_max = 0}, "hello", options);
  f.model.engine->set_paused(true);
  const TestResponse late = f.post(kChatPath, kChatStream);
  EXPECT_EQ(late.status, 503) << late.body;
  EXPECT_TRUE(late.headers.count("retry-after"));
}

}  // namespace
}  // namespace headrace::server_conventions_test
