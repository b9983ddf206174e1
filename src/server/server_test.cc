// The server over real sockets on a fake engine: routes, authentication, answers, streams.
#include <malloc.h>

#include <gtest/gtest.h>

#include <set>
#include <thread>
#include <vector>

#include <fmt/format.h>

#include "base/rng.h"
#include "server/random_id.h"
#include "server/router.h"
#include "server/server_fixture.h"

namespace headrace::server_test {
namespace {

using namespace std::chrono_literals;
using Fixture = ServerFixture;

// --- Routes --------------------------------------------------------------------------------------

TEST(Server, HealthFollowsLoadingAndProgress) {
  Fixture f({}, "x", {}, false);
  EXPECT_EQ(f.get("/health").status, 503);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a"})").status, 503);
  EXPECT_TRUE(f.get("/health").json().find("error"));
  ASSERT_TRUE(f.server->set_ready(f.model.served()).ok());
  for (std::string_view path : {"/health", "/v1/health", "/ping"})
    EXPECT_EQ(f.get(path).status, 200) << path;
  EXPECT_EQ(f.get("/health").body, R"({"status":"ok"})");
  f.model.engine->set_healthy(false);
  EXPECT_EQ(f.get("/health").status, 503);
}

TEST(Server, ModelsVersionLoad) {
  Fixture f;
  const Json list = f.get("/v1/models").json();
  ASSERT_EQ(at(list, "data").as_array().size(), 2u);
  EXPECT_EQ(at(at(list, "data").as_array()[0], "id").as_string(), "tiny");
  EXPECT_EQ(f.get("/v1/models/tiny-alias").status, 200);
  EXPECT_EQ(f.get("/v1/models/tiny%2Dalias").status, 200);
  EXPECT_EQ(f.get("/v1/models/other").status, 404);
  EXPECT_TRUE(at(f.get("/version").json(), "version").is_string());
  EXPECT_EQ(at(f.get("/load").json(), "server_load").as_int(), 0);
}

TEST(Server, UnknownRoutesMethodsAndModels) {
  Fixture f;
  EXPECT_EQ(f.get("/nothing").status, 404);
  EXPECT_EQ(f.get("/v1/models/").status, 404);
  const TestResponse wrong_method = f.get(kCompletions);
  EXPECT_EQ(wrong_method.status, 405);
  EXPECT_EQ(wrong_method.headers.at("allow"), "POST");
  EXPECT_NE(wrong_method.body.find("takes POST only"), wrong_method.body.npos) << wrong_method.body;
  const TestResponse unknown = f.post(kCompletions, R"({"model":"gpt-9","prompt":"a"})");
  EXPECT_EQ(unknown.status, 404);
  EXPECT_EQ(at(at(unknown.json(), "error"), "type").as_string(), "NotFoundError");
  EXPECT_EQ(at(at(unknown.json(), "error"), "code").as_int(), 404);
  EXPECT_NE(unknown.body.find("gpt-9"), unknown.body.npos) << unknown.body;
}

// A body behind the head would be read as the beginning of the next answer.
// What a request leaves to be done later must not keep the memory of its connection.
TEST(Server, ConnectionsThatHaveEndedTakeNoMemory) {
  ServerOptions options;
  options.requests.queue_seconds_max = 600;
  Fixture f({}, "hello world", options);
  const auto in_use = [] { return static_cast<int64_t>(mallinfo2().uordblks); };
  const auto ask = [&](int count) {
    for (int i = 0; i < count; ++i) {
      EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","max_tokens":2})").status, 200);
    }
  };
  ask(50);
  const int64_t before = in_use();
  ask(500);
  EXPECT_LT(in_use() - before, 500 * 2000);
}
TEST(Server, HeadIsGetWithoutTheBody) {
  Fixture f;
  const std::pair<const char*, int> targets[] = {{"/health", 200},
                                                 {"/v1/models", 200},
                                                 {"/metrics", 200},
                                                 {"/nothing", 404},
                                                 {"/tokenize", 405}};
  for (const auto& [target, status] : targets) {
    TestClient client(f.server->port());
    client.send(fmt::format("HEAD {} HTTP/1.1\r\nHost: x\r\n\r\n", target));
    std::string head;
    while (!head.ends_with("\r\n\r\n") && head.size() < 4096) head += client.receive(1);
    EXPECT_TRUE(head.starts_with(fmt::format("HTTP/1.1 {} ", status))) << head;
    EXPECT_NE(head.find("\r\nContent-Length: "), head.npos) << head;
    const auto next = client.get("/health");
    ASSERT_TRUE(next.has_value()) << target;
    EXPECT_EQ(next->body, R"({"status":"ok"})") << target;
  }
}

// They come with the first event, also where its text is held back for what may be a stop string.
TEST(Server, APromptsIdsAreToldThoughTheFirstTokenIsHeldBack) {
  Fixture f;
  const auto first = [&](std::string_view members) {
    const TestResponse response = f.post(
        kCompletions, R"({"prompt":"a","max_tokens":20,"stream":true,"return_token_ids":true)" +
                          std::string(members) + "}");
    EXPECT_EQ(response.status, 200) << response.body;
    return *parse_json(response.events().front());
  };
  const Json ids = at(choice(first("")), "prompt_token_ids");
  EXPECT_FALSE(ids.as_array().empty());
  const Json held = choice(first(R"(,"stop":"hellX")"));
  EXPECT_EQ(at(held, "prompt_token_ids"), ids);
  EXPECT_EQ(at(held, "text"), Json(""));
}

// Who brings a journal cannot have more of a prompt in the cache than it has tokens.
TEST(Server, AJournalsCachedTokensAreThePromptsAtMost) {
  Fixture f;
  const TestResponse response = f.post(
      kCompletions,
      R"({"prompt":[5,6],"max_tokens":4,"stream":true,"stream_options":{"include_usage":true},)"
      R"("headrace_resume":{"head":{"id":"x","created":1,"call_seed":"1","seeds":["1"],)"
      R"("fingerprint":"other"},"journal":[{"t":[7],"k":2000000000}],"inexact":true}})");
  ASSERT_EQ(response.status, 200) << response.body;
  EXPECT_NE(response.body.find(R"("cached_tokens":2})"), response.body.npos) << response.body;
}

TEST(Server, WhatARequestDoesNotSayTheModelSays) {
  Fixture f({}, "hello world", {}, false);
  ServedModel model = f.model.served();
  model.sampling = {.temperature = 0.25f, .top_k = 7, .max_new_tokens = 5};
  ASSERT_TRUE(f.server->set_ready(std::move(model)).ok());
  const auto sampling = [&](std::string_view path, std::string_view body) {
    EXPECT_EQ(f.post(path, body).status, 200) << body;
    return f.model.engine->last_request().sampling;
  };
  const SamplingParams silent = sampling(kCompletions, R"({"prompt":"a","temperature":null})");
  EXPECT_EQ(silent.temperature, 0.25f);
  EXPECT_EQ(silent.top_k, 7);
  EXPECT_EQ(silent.top_p, 1.0f);
  EXPECT_EQ(silent.max_tokens, 5);
  const SamplingParams explicit_ones = sampling(
      kChatPath,
      R"({"messages":[{"role":"user","content":"a"}],"temperature":1,"top_k":-1,"max_tokens":3})");
  EXPECT_EQ(explicit_ones.temperature, 1.0f);
  EXPECT_EQ(explicit_ones.top_k, 0);
  EXPECT_EQ(explicit_ones.max_tokens, 3);
  EXPECT_EQ(sampling(kCompletions, R"({"prompt":"a","max_tokens":50})").max_tokens, 5);
}

TEST(Server, TokenizeAndDetokenizeInBothForms) {
  Fixture f;
  const Json vllm =
      f.post("/tokenize",
             R"({"prompt":"hi<|im_end|>","parse_special":true,"return_token_strs":true})")
          .json();
  EXPECT_EQ(at(vllm, "count").as_int(), 4);  // BOS, h, i, the control token
  EXPECT_EQ(at(vllm, "token_strs").as_array()[3].as_string(), "<|im_end|>");
  EXPECT_EQ(at(vllm, "max_model_len").as_int(), 4096);
  const Json plain = f.post("/tokenize", R"({"content":"hi<|im_end|>"})").json();
  EXPECT_EQ(at(plain, "tokens").as_array().size(), 12u);
  // A control token by its name, as evaluation harnesses look its id up; but not where told.
  const Json name = f.post("/tokenize", R"({"content":"<|im_end|>"})").json();
  EXPECT_EQ(at(name, "tokens").as_array()[0].as_int(), f.model.control("<|im_end|>"));
  const Json text_of_name =
      f.post("/tokenize", R"({"content":"<|im_end|>","parse_special":false})").json();
  EXPECT_EQ(at(text_of_name, "tokens").as_array().size(), 10u);
  const Json pieces = f.post("/tokenize", R"({"content":"é","with_pieces":true})").json();
  EXPECT_EQ(write_json(at(at(pieces, "tokens").as_array()[0], "piece")), "\"é\"");
  const Json chat =
      f.post("/tokenize", R"({"messages":[{"role":"user","content":"<|im_end|>"}]})").json();
  EXPECT_EQ(at(chat, "tokens").as_array()[0].as_int(), f.model.control("<|im_start|>"));
  Json tokens = Json::object();
  tokens.set("tokens", at(plain, "tokens"));
  const Json text = f.post("/detokenize", write_json(tokens)).json();
  EXPECT_EQ(at(text, "prompt").as_string(), "hi<|im_end|>");
  EXPECT_EQ(at(text, "content").as_string(), "hi<|im_end|>");
  EXPECT_EQ(f.post("/detokenize", R"({"tokens":[99999]})").error_param(), "tokens");
  EXPECT_EQ(f.post("/tokenize", R"({"prompt":"a","content":"a"})").status, 400);
}

TEST(Server, TokenizeRefusesWhatWouldHoldAThread) {
  Fixture f;
  const std::string long_text(RequestLimits().tokenize_bytes_max + 1, 'a');
  for (const char* field : {"prompt", "content"}) {
    const TestResponse refused =
        f.post("/tokenize", std::string("{\"") + field + "\":\"" + long_text + "\"}");
    EXPECT_EQ(refused.status, 400);
    EXPECT_EQ(refused.error_param(), field);
    EXPECT_NE(refused.body.find("2097153 bytes, more than the 2097152"), std::string::npos)
        << refused.body;
  }
}

TEST(Server, ApplyTemplateGivesTheRenderedText) {
  Fixture f;
  const Json json =
      f.post("/apply-template", R"({"messages":[{"role":"user","content":"a<|im_end|>"}]})").json();
  EXPECT_EQ(at(json, "prompt").as_string(),
            "<|im_start|>user\na<|im_end|><|im_end|>\n<|im_start|>assistant\n");
}

TEST(Server, ToolsReachTheTemplateOnEveryRoute) {
  Fixture f;
  const std::string body =
      R"({"messages":[{"role":"user","content":"a"}],"max_tokens":1,"tool_choice":"none","tools":)"
      R"([{"type":"function","function":{"name":"f"}}]})";
  const std::string prompt = at(f.post("/apply-template", body).json(), "prompt").as_string();
  EXPECT_EQ(prompt.substr(0, prompt.find('\n')),
            R"([{"type": "function", "function": {"name": "f"}}])");
  const int64_t count = at(f.post("/tokenize", body).json(), "count").as_int();
  const Json answer = f.post("/v1/chat/completions", body).json();
  EXPECT_EQ(at(at(answer, "usage"), "prompt_tokens").as_int(), count);
  EXPECT_GT(count, static_cast<int64_t>(40));
}

TEST(Server, RequestIdIsEchoedIfHarmlessElseMade) {
  Fixture f;
  EXPECT_EQ(f.get("/health", "X-Request-Id: abc-1\r\n").headers.at("x-request-id"), "abc-1");
  std::set<std::string> made;
  for (const char* sent : {"", "X-Request-Id: a b\r\n", "X-Request-Id: \r\n"}) {
    made.insert(f.get("/nothing", sent).headers.at("x-request-id"));
    made.insert(f.post(kChatPath, kChatStream, sent).headers.at("x-request-id"));
  }
  EXPECT_EQ(made.size(), 6u);
  for (const std::string& id : made) EXPECT_EQ(id.size(), 32u) << id;
  TestClient unreadable(f.server->port());
  unreadable.send("nonsense\r\n\r\n");
  EXPECT_EQ(unreadable.read_response()->headers.at("x-request-id").size(), 32u);
  EXPECT_EQ(f.post(kChatPath, kChatStream, "X-Request-Id: s\r\n").headers.at("x-request-id"), "s");
}

// --- Authentication ------------------------------------------------------------------------------

TEST(Server, EveryRouteByKey) {
  ServerOptions options;
  options.api_keys = {"right", "second"};
  Fixture f({}, "x", options);
  const std::string_view headers_without_access[] = {"",
                                                     "Authorization: Bearer wrong\r\n",
                                                     "Authorization: Bearer righ\r\n",
                                                     "Authorization: Bearer rightt\r\n",
                                                     "Authorization: right\r\n",
                                                     "Authorization: Basic right\r\n",
                                                     "X-API-Key: wrong\r\n",
                                                     "X-API-Key: \r\n",
                                                     "Authorization: Bearer \r\n",
                                                     "Host2: right\r\n"};
  for (const Route& route : routes()) {
    std::string path(route.path);
    if (const size_t parameter = path.find("{id}"); parameter != path.npos)
      path.replace(parameter, 4, "tiny");
    const auto call = [&](std::string_view headers) {
      return (route.method == "GET" ? f.get(path, headers) : f.post(path, "{}", headers)).status;
    };
    for (std::string_view headers : headers_without_access) {
      EXPECT_EQ(call(headers) == 401, route.auth == AuthClass::kKey) << path << " " << headers;
    }
    for (std::string_view headers : {"Authorization: Bearer right\r\n",
                                     "authorization: bearer second\r\n", "X-API-Key: right\r\n"}) {
      EXPECT_NE(call(headers), 401) << path;
    }
  }
}

TEST(Server, MetricsMayHaveAKeyOfTheirOwn) {
  for (const bool with_api_key : {false, true}) {
    ServerOptions options;
    if (with_api_key) options.api_keys = {"right"};
    options.metrics_key = "scraper";
    Fixture f({}, "x", options);
    EXPECT_EQ(f.get("/metrics").status, 401);
    EXPECT_EQ(f.get("/metrics", "Authorization: Bearer wrong\r\n").status, 401);
    EXPECT_EQ(f.get("/metrics", "Authorization: Bearer scraper\r\n").status, 200);
    EXPECT_EQ(f.get("/metrics", "X-API-Key: right\r\n").status, with_api_key ? 200 : 401);
    EXPECT_EQ(f.get("/health").status, 200);
    EXPECT_EQ(f.get("/v1/models", "X-API-Key: scraper\r\n").status, with_api_key ? 401 : 200);
  }
}

// Of numbers that one seed gives through a bijection, any tells all others: the ids of files,
// batches and answers must not.
TEST(Server, IdsTellNothingOfEachOther) {
  const auto inverse_mix64 = [](uint64_t x) {  // of mix64(), base/rng.h
    x ^= (x >> 31) ^ (x >> 62);
    x *= 0x319642b2d24d8ec3ull;
    x ^= (x >> 27) ^ (x >> 54);
    x *= 0x96de1b173f119089ull;
    return (x ^ (x >> 30) ^ (x >> 60)) - 0x9e3779b97f4a7c15ull;
  };
  ASSERT_EQ(inverse_mix64(mix64(12345)), 12345u);
  std::set<std::string> ids;
  for (int i = 0; i < 1000; ++i) ids.insert(random_hex_id());
  EXPECT_EQ(ids.size(), 1000u);
  const auto half = [&](const std::string& id, size_t at) {
    return inverse_mix64(std::stoull(id.substr(at, 16), nullptr, 16));
  };
  const std::string first = random_hex_id(), second = random_hex_id();
  ASSERT_EQ(first.size(), 32u);
  EXPECT_GT(half(first, 0) ^ half(second, 0), 1u << 20) << first << " " << second;
  EXPECT_GT(half(second, 16) - half(first, 16), 1u << 20) << first << " " << second;
  EXPECT_NE(half(first, 0), ~half(first, 16));
}

TEST(Server, PathTricksDoNotPassAuthentication) {
  ServerOptions options;
  options.api_keys = {"right"};
  Fixture f({}, "x", options);
  for (std::string_view path :
       {"/v1/models/", "//v1/models", "/health/../v1/models", "/health%2f..%2fv1/models",
        "/v1/models?x=/health", "/v1/models;/health", "/V1/models", "/v1/./models", "/nothing",
        "/health/", "/healthx", "/metrics/x"}) {
    EXPECT_EQ(f.get(path).status, 401) << path;
  }
  TestClient absolute(f.server->port());
  absolute.send("GET http://x/v1/models HTTP/1.1\r\nHost: /health\r\n\r\n");
  EXPECT_EQ(absolute.read_response()->status, 400);
  EXPECT_EQ(f.get("/v1/models", "X-Forwarded-Path: /health\r\nX-Original-URL: /health\r\n").status,
            401);
}

// --- Completions and chat ------------------------------------------------------------------------

TEST(Server, CompletionWithTextAndIds) {
  Fixture f;
  const TestResponse response = f.post(kCompletions, R"({"prompt":"a","max_tokens":50})");
  ASSERT_EQ(response.status, 200);
  const Json json = response.json();
  EXPECT_EQ(at(json, "object").as_string(), "text_completion");
  EXPECT_EQ(at(json, "id").as_string().substr(0, 5), "cmpl-");
  EXPECT_EQ(at(choice(json), "text").as_string(), "hello world");
  EXPECT_EQ(at(choice(json), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(at(json, "usage"), "prompt_tokens").as_int(), 2);  // with BOS
  EXPECT_EQ(at(at(json, "usage"), "completion_tokens").as_int(), 12);
  const Json ids = f.post(kCompletions, R"({"prompt":[7,8,9]})").json();
  EXPECT_EQ(at(at(ids, "usage"), "prompt_tokens").as_int(), 3);
  EXPECT_EQ(f.model.engine->last_request().sampling.max_tokens, 16);
  EXPECT_EQ(f.model.engine->last_request().sampling.temperature, 1.0f);
}

TEST(Server, SeveralPromptsAndChoicesAreIndexedPromptMajor) {
  Fixture f({}, "");
  const Json json =
      f.post(kCompletions,
             R"({"prompt":[[5],[6],[7]],"n":2,"max_tokens":4,"return_token_ids":true})")
          .json();
  ASSERT_EQ(at(json, "choices").as_array().size(), 6u);
  for (int i = 0; i < 6; ++i) {
    const Json& item = choice(json, static_cast<size_t>(i));
    EXPECT_EQ(at(item, "index").as_int(), i);
    EXPECT_EQ(at(item, "prompt_token_ids").as_array()[0].as_int(), 5 + i / 2);
    Request request;
    request.prompt = {5 + i / 2};
    for (size_t t = 0; t < 4; ++t) {
      EXPECT_EQ(at(item, "token_ids").as_array()[t].as_int(),
                f.model.engine->token_at(request, i % 2, t));
    }
  }
  EXPECT_EQ(at(at(json, "usage"), "prompt_tokens").as_int(), 3);
  EXPECT_EQ(at(at(json, "usage"), "completion_tokens").as_int(), 24);
}

// What evaluation harnesses do: the log-probabilities of a text are those it was generated with.
TEST(Server, EchoScoresWithTheBitsOfGeneration) {
  Fixture f({}, "");
  const std::string options = R"("logprobs":3,"return_tokens_as_token_ids":true,"echo":true)";
  const Json generated =
      f.post(kCompletions, R"({"prompt":[5,6],"max_tokens":6,)" + options + "}").json();
  const Json& logprobs = at(choice(generated), "logprobs");
  ASSERT_EQ(at(logprobs, "tokens").as_array().size(), 8u);
  EXPECT_TRUE(at(logprobs, "token_logprobs").as_array()[0].is_null());
  EXPECT_TRUE(at(logprobs, "top_logprobs").as_array()[0].is_null());
  Json ids = Json::array();
  for (const Json& token : at(logprobs, "tokens").as_array())
    ids.push(Json(int64_t{std::stoi(token.as_string().substr(9))}));
  Json again = *parse_json("{\"max_tokens\":0," + options + "}");
  again.set("prompt", ids);
  const Json scored = f.post(kCompletions, write_json(again)).json();
  EXPECT_EQ(write_json(at(at(choice(scored), "logprobs"), "token_logprobs")),
            write_json(at(logprobs, "token_logprobs")));
  EXPECT_EQ(at(choice(scored), "text").as_string(), at(choice(generated), "text").as_string());
  EXPECT_EQ(at(choice(scored), "finish_reason").as_string(), "length");
  const float first = FakeEngine::logprob(5, 6);
  EXPECT_EQ(static_cast<float>(at(logprobs, "token_logprobs").as_array()[1].as_double()), first);
}

TEST(Server, ChatObjectWithLogprobs) {
  Fixture f({}, "é!");
  const TestResponse response =
      f.post(kChatPath,
             R"({"messages":[{"role":"user","content":"hi"}],"logprobs":true,"top_logprobs":2})");
  const Json json = response.json();
  EXPECT_EQ(at(json, "object").as_string(), "chat.completion");
  EXPECT_EQ(at(json, "id").as_string().substr(0, 9), "chatcmpl-");
  EXPECT_EQ(at(at(choice(json), "message"), "content").as_string(), "é!");
  EXPECT_EQ(at(at(choice(json), "message"), "role").as_string(), "assistant");
  const Json::Array& content = at(at(choice(json), "logprobs"), "content").as_array();
  ASSERT_EQ(content.size(), 4u);
  EXPECT_EQ(at(content[0], "bytes").as_array()[0].as_int(), 0xC3);
  EXPECT_EQ(at(content[0], "token").as_string(), "bytes:\\xc3");
  EXPECT_EQ(at(content[0], "top_logprobs").as_array().size(), 2u);
  // max_tokens default: what is left of the context
  const auto prompt = static_cast<int32_t>(f.model.engine->last_request().prompt.size());
  EXPECT_EQ(f.model.engine->last_request().sampling.max_tokens, 4096 - prompt);
}

TEST(Server, StopStringCancelsTheChoiceAndIsTheReason) {
  Fixture f({}, "one two three");
  const Json json =
      f.post(kCompletions, R"({"prompt":"a","max_tokens":50,"stop":["wo","zz"]})").json();
  EXPECT_EQ(at(choice(json), "text").as_string(), "one t");
  EXPECT_EQ(at(choice(json), "finish_reason").as_string(), "stop");
  EXPECT_EQ(at(choice(json), "stop_reason").as_string(), "wo");
  EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 0; }));
  const Json kept =
      f.post(kCompletions,
             R"({"prompt":"a","max_tokens":50,"stop":"wo","include_stop_str_in_output":true})")
          .json();
  EXPECT_EQ(at(choice(kept), "text").as_string(), "one two");
}

TEST(Server, AFaultOfOneRequestIsA500AndNoOnesElse) {
  Fixture f;
  f.model.engine->fail_next_emission();
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a"})").status, 500);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a"})").status, 200);
}

// What ended it is in what its requests are told, and in its health.
TEST(Server, AnEngineThatHasFailedSaysWhy) {
  Fixture f;
  f.model.engine->fail(
      internal_error("the engine has failed: CUDA: a fault (cudaErrorOfSomeKind)"));
  const TestResponse ended = f.post(kCompletions, R"({"prompt":"a"})");
  EXPECT_EQ(ended.status, 500);
  EXPECT_NE(ended.body.find("the engine has failed: CUDA: a fault (cudaErrorOfSomeKind)"),
            std::string::npos);
  const TestResponse health = f.get("/health");
  EXPECT_EQ(health.status, 503);
  EXPECT_NE(health.body.find("cudaErrorOfSomeKind"), std::string::npos);
}

TEST(Server, BadRequestsReachNoEngine) {
  Fixture f;
  for (std::string_view body :
       {"", "[]", "null", "{", R"({"prompt":"a","temperature":NaN})",
        R"({"prompt":"a","temperature":Infinity})", R"({"prompt":"a","n":1e999})",
        R"({"prompt":"a","prompt":"b"})", R"({"prompt":"a","top_p":0})",
        R"({"prompt":"a","n":100000})", R"({"prompt":"a","suffix":"b"})", R"({"prompt":""})",
        R"({"prompt":[]})", R"({"prompt":"a","max_tokens":-2})"}) {
    const TestResponse response = f.post(kCompletions, body);
    // BOS makes "" a prompt of one token for this model.
    EXPECT_EQ(response.status, body == R"({"prompt":""})" ? 200 : 400) << body;
  }
  EXPECT_EQ(f.model.engine->submitted(), 1);
  EXPECT_EQ(f.post(kCompletions, R"({"prompt":"a","temperature":"NaN"})").error_param(),
            "temperature");
}

TEST(Server, APromptThatCannotFitNamesBothNumbers) {
  Fixture f({.max_model_len = 20});
  const TestResponse response = f.post(kCompletions, R"({"prompt":"zzzzzzzzzz","max_tokens":10})");
  EXPECT_EQ(response.status, 400);
  const std::string message = at(at(response.json(), "error"), "message").as_string();
  EXPECT_NE(message.find("11"), std::string::npos) << message;
  EXPECT_NE(message.find("20"), std::string::npos) << message;
  const auto refusal = [&](const std::string& text) {
    const TestResponse longer = f.post(kCompletions, R"({"prompt":")" + text + R"("})");
    EXPECT_EQ(longer.status, 400);
    EXPECT_EQ(longer.error_param(), "prompt");
    return longer.body;
  };
  const std::string near = refusal(std::string(30, 'z')), far = refusal(std::string(400, 'z'));
  EXPECT_EQ(near.find("more than"), std::string::npos) << near;
  // A text that is far too long is not encoded to its end.
  EXPECT_NE(far.find("more than 40 tokens, and this model's maximum context length is 20"),
            std::string::npos)
      << far;
}

// --- Streams -------------------------------------------------------------------------------------

TEST(Server, ChatStreamContract) {
  Fixture f({}, "aé😀");
  const TestResponse response = f.post(
      kChatPath,
      R"({"messages":[{"role":"user","content":"hi"}],"stream":true,"stream_options":{"include_usage":true}})");
  ASSERT_EQ(response.status, 200);
  EXPECT_EQ(response.headers.at("content-type").substr(0, 17), "text/event-stream");
  const std::vector<std::string> events = response.events();
  ASSERT_GE(events.size(), 5u);
  EXPECT_EQ(events.back(), "[DONE]");
  std::string text;
  std::set<std::string> ids;
  for (size_t i = 0; i + 1 < events.size(); ++i) {
    const Json chunk = *parse_json(events[i]);
    ids.insert(at(chunk, "id").as_string());
    EXPECT_EQ(at(chunk, "object").as_string(), "chat.completion.chunk");
    const bool last = i + 2 == events.size();
    EXPECT_EQ(chunk.find("usage") != nullptr, last);
    EXPECT_EQ(chunk.find("system_fingerprint") != nullptr, i + 3 >= events.size());
    if (last) {
      EXPECT_TRUE(at(chunk, "choices").as_array().empty());
      EXPECT_EQ(at(at(chunk, "usage"), "completion_tokens").as_int(), 8);
      continue;
    }
    const Json& delta = at(choice(chunk), "delta");
    EXPECT_EQ(delta.find("role") != nullptr, i == 0);
    if (delta.find("content")) text += at(delta, "content").as_string();
    const bool finishing = i + 3 == events.size();
    EXPECT_EQ(at(choice(chunk), "finish_reason"), finishing ? Json("stop") : Json());
  }
  EXPECT_EQ(text, "aé😀");
  EXPECT_EQ(ids.size(), 1u);
}

TEST(Server, RoleChunkComesWithTheFirstResultNotBefore) {
  Fixture f;
  f.model.engine->set_paused(true);
  TestClient client(f.server->port());
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}", kChatPath,
                          kChatStream.size(), kChatStream));
  // The head tells proxies that the answer is under way.
  std::string head;
  while (!head.ends_with("\r\n\r\n") && head.size() < 4096) head += client.receive(1);
  EXPECT_EQ(head.find("HTTP/1.1 200 OK\r\n"), 0u) << head;
  EXPECT_EQ(client.receive(1, 0.3), "");
  f.model.engine->set_paused(false);
  EXPECT_NE(client.receive(200).find("\"role\":\"assistant\""), std::string::npos);
}

TEST(Server, CompletionStreamJoinsToTheWholeAnswer) {
  Fixture f({}, "text with STOP in it");
  const std::string base =
      R"("prompt":["a","b"],"n":2,"max_tokens":50,"echo":true,"logprobs":2,"stop":"STOP")";
  const Json whole = f.post(kCompletions, "{" + base + "}").json();
  const TestResponse stream = f.post(kCompletions, "{" + base + R"(,"stream":true})");
  std::vector<std::string> texts(4), logprobs(4), offsets(4);
  for (const std::string& event : stream.events()) {
    if (event == "[DONE]") continue;
    const Json chunk = *parse_json(event);
    const auto index = static_cast<size_t>(at(choice(chunk), "index").as_int());
    texts[index] += at(choice(chunk), "text").as_string();
    for (const Json& value : at(at(choice(chunk), "logprobs"), "token_logprobs").as_array())
      logprobs[index] += write_json(value) + " ";
    for (const Json& value : at(at(choice(chunk), "logprobs"), "text_offset").as_array())
      offsets[index] += write_json(value) + " ";
  }
  for (size_t i = 0; i < 4; ++i) {
    EXPECT_EQ(texts[i], at(choice(whole, i), "text").as_string());
    std::string expected_logprobs, expected_offsets;
    for (const Json& value : at(at(choice(whole, i), "logprobs"), "token_logprobs").as_array())
      expected_logprobs += write_json(value) + " ";
    for (const Json& value : at(at(choice(whole, i), "logprobs"), "text_offset").as_array())
      expected_offsets += write_json(value) + " ";
    EXPECT_EQ(logprobs[i], expected_logprobs);
    EXPECT_EQ(offsets[i], expected_offsets);
  }
  EXPECT_EQ(texts[0], "atext with ");
}

TEST(Server, AFaultInAStreamIsAnErrorEvent) {
  Fixture f({.step_seconds = 0.02}, "");
  TestClient client(f.server->port());
  const std::string body = R"({"prompt":"a","max_tokens":500,"stream":true})";
  client.send(fmt::format("POST {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                          kCompletions, body.size(), body));
  EXPECT_TRUE(eventually([&] { return f.model.engine->stats().scheduler.running == 1; }));
  std::this_thread::sleep_for(200ms);
  f.model.engine->fail_next_emission();
  const std::vector<std::string> events = client.read_response()->events();
  ASSERT_GE(events.size(), 2u);
  EXPECT_EQ(events.back(), "[DONE]");
  EXPECT_TRUE(parse_json(events[events.size() - 2])->find("error"));
  size_t finishing = 0;
  for (const std::string& event : events)
    finishing += event.find("\"finish_reason\":\"") != event.npos;
  EXPECT_EQ(finishing, 0u);  // a failure never looks like a clean end
}

TEST(Server, HttpOneZeroStreamsUntilClose) {
  Fixture f;
  TestClient client(f.server->port());
  client.send(fmt::format("POST {} HTTP/1.0\r\nContent-Length: {}\r\n\r\n{}", kChatPath,
                          kChatStream.size(), kChatStream));
  const auto response = client.read_response(1);
  EXPECT_EQ(response->headers.count("transfer-encoding"), 0u);
  EXPECT_EQ(response->events().back(), "[DONE]");
}

TEST(Server, MetricsUnderTheNamesOfVllm) {
  Fixture f;
  EXPECT_EQ(f.post(kChatPath, kChat).status, 200);
  const std::string text = f.get("/metrics").body;
  for (std::string_view name : {"vllm:num_requests_running",
                                "vllm:num_requests_waiting",
                                "vllm:kv_cache_usage_perc",
                                "vllm:gpu_cache_usage_perc",
                                "vllm:prompt_tokens_total",
                                "vllm:external_prefix_cache_queries_total",
                                "vllm:mm_cache_hits_total",
                                "sglang:num_requests_total",
                                "sglang:gen_throughput",
                                "sglang:spec_accept_length",
                                "llamacpp:n_tokens_max",
                                "llamacpp:n_busy_slots_per_decode",
                                "vllm:generation_tokens_total",
                                "vllm:num_preemptions_total",
                                "vllm:time_to_first_token_seconds_bucket",
                                "vllm:request_queue_time_seconds_count",
                                "vllm:iteration_tokens_total_bucket",
                                "vllm:inter_token_latency_seconds_count",
                                "vllm:time_per_output_token_seconds_count",
                                "vllm:request_time_per_output_token_seconds_sum",
                                "vllm:e2e_request_latency_seconds_bucket",
                                "vllm:request_prompt_tokens_bucket",
                                "vllm:request_generation_tokens_bucket",
                                "headrace:background_tokens_total",
                                "headrace:background_room_seconds_total",
                                "headrace:background_used_seconds_total",
                                "headrace:beside_steps_total",
                                "headrace:beside_steps_over_total",
                                "headrace:beside_step_seconds_total",
                                "headrace:beside_step_seconds_max"}) {
    EXPECT_NE(text.find("\n" + std::string(name) + "{"), std::string::npos) << name;
  }
  EXPECT_NE(text.find("vllm:generation_tokens_total{engine=\"0\",model_name=\"tiny\"} 12"),
            std::string::npos)
      << text;
  EXPECT_NE(text.find("finished_reason=\"stop\""), std::string::npos);
}

}  // namespace
}  // namespace headrace::server_test
