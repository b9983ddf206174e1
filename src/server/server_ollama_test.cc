// Ollama's API over HTTP: what its clients send and read, and that every refusal names what it
// refuses in Ollama's form of errors.
#include <gtest/gtest.h>

#include <sstream>

#include <fmt/format.h>

#include "server/server_fixture.h"

namespace headrace::server_ollama_test {
namespace {

constexpr std::string_view kOllamaChat = "/api/chat";
constexpr std::string_view kOllamaGenerate = "/api/generate";
constexpr std::string_view kHi = R"("messages":[{"role":"user","content":"hi"}])";
constexpr std::string_view kOllamaTools =
    R"("tools":[{"type":"function","function":{"name":"get_weather","parameters":{"type":"object"}}}])";
constexpr std::string_view kAnswerWithCalls =
    "<think>\nHm.\n</think>\n\nI look.\n"
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {\"city\": \"K\xC3\xB6ln\"}}\n"
    "</tool_call>\n"
    "<tool_call>\n{\"name\": \"get_weather\", \"arguments\": {}}\n</tool_call>";

struct OllamaFixture : ServerFixture {
  explicit OllamaFixture(std::string_view script = "hello world", ServerOptions options = {})
      : ServerFixture({}, script, std::move(options), false) {
    ServedModel served = model.served();
    served.tool_call_parser = "hermes";
    served.reasoning_parser = "qwen3";
    served.facts = {.path = "/models/tiny.gguf",
                    .architecture = "llama",
                    .weight_types = "Q4_1",
                    .parameter_count = 134'500'000,
                    .file_bytes = 98'000'000,
                    .context_length = 8192};
    CHECK(server->set_ready(served).ok());
  }
  TestResponse chat(std::string_view fields) {
    return post(kOllamaChat, fmt::format("{{{},{}}}", kHi, fields));
  }
  TestResponse prompt(std::string_view fields) {
    return post(kOllamaGenerate, fmt::format(R"({{"prompt":"hi",{}}})", fields));
  }
};

std::vector<Json> lines(const TestResponse& response) {
  std::vector<Json> result;
  std::istringstream in(response.body);
  for (std::string line; std::getline(in, line);) {
    auto json = parse_json(line);
    EXPECT_TRUE(json.ok()) << line;
    if (json.ok()) result.push_back(std::move(*json));
  }
  return result;
}

// Empty where the answer is no error in Ollama's form.
std::string ollama_error(const TestResponse& response) {
  if (response.status < 400) return "";
  const Json json = response.json();
  const Json* error = json.find("error");
  return error && error->is_string() && json.as_object().size() == 1 ? error->as_string() : "";
}

TEST(ServerOllama, AStreamOfLinesSaysWhatAWholeAnswerSays) {
  OllamaFixture f(kAnswerWithCalls);
  const Json whole = f.chat(fmt::format(R"({},"stream":false)", kOllamaTools)).json();
  const TestResponse streamed = f.chat(kOllamaTools);  // which is the default
  EXPECT_EQ(streamed.headers.at("content-type"), "application/x-ndjson");
  std::string content, thinking;
  Json::Array calls;
  const std::vector<Json> all = lines(streamed);
  for (const Json& line : all) {
    EXPECT_EQ(at(line, "done"), Json(&line == &all.back()));
    EXPECT_EQ(at(line, "model"), Json("tiny"));
    const Json& message = at(line, "message");
    content += at(message, "content").as_string();
    if (const Json* thought = message.find("thinking")) thinking += thought->as_string();
    if (const Json* said = message.find("tool_calls")) {
      for (const Json& call : said->as_array()) calls.push_back(at(call, "function"));
    }
  }
  EXPECT_EQ(content, "I look.");
  EXPECT_EQ(thinking, "Hm.");
  ASSERT_EQ(calls.size(), 2u);
  EXPECT_EQ(at(at(calls[0], "arguments"), "city"), Json("K\xC3\xB6ln"));
  EXPECT_EQ(at(calls[1], "arguments"), Json::object());
  const Json& message = at(whole, "message");
  EXPECT_EQ(at(message, "content"), Json(content));
  EXPECT_EQ(at(message, "thinking"), Json(thinking));
  ASSERT_EQ(at(message, "tool_calls").as_array().size(), 2u);
  for (size_t i = 0; i < 2; ++i) {
    EXPECT_EQ(at(at(message, "tool_calls").as_array()[i], "function"), calls[i]);
  }
  for (const Json* last : {&whole, &all.back()}) {
    EXPECT_EQ(at(*last, "done_reason"), Json("stop"));
    EXPECT_EQ(at(*last, "eval_count").as_int(),
              static_cast<int64_t>(kAnswerWithCalls.size() + 1));  // bytes, and the end
    EXPECT_GT(at(*last, "prompt_eval_count").as_int(), 0);
    const int64_t parts =
        at(*last, "prompt_eval_duration").as_int() + at(*last, "eval_duration").as_int();
    EXPECT_GE(at(*last, "total_duration").as_int(), parts);
    EXPECT_GT(parts, 0);
  }
}

TEST(ServerOllama, HalfACallIsText) {
  OllamaFixture f(kAnswerWithCalls);
  const auto cut = kAnswerWithCalls.find("K\xC3\xB6ln");
  for (const char* stream : {"true", "false"}) {
    const TestResponse response = f.chat(
        fmt::format(R"({},"stream":{},"options":{{"num_predict":{}}})", kOllamaTools, stream, cut));
    std::string content;
    for (const Json& line : lines(response)) {
      content += at(at(line, "message"), "content").as_string();
      EXPECT_EQ(at(line, "message").find("tool_calls"), nullptr);
    }
    EXPECT_EQ(content, "I look.{\"city\": \"") << stream;
    EXPECT_EQ(at(lines(response).back(), "done_reason"), Json("length"));
  }
}

TEST(ServerOllama, GenerateRendersTheTemplateUnlessRaw) {
  OllamaFixture f;
  const auto prompt = [&] {
    return f.model.tokenizer->decode(f.model.engine->last_request().prompt, false);
  };
  const Json answer = f.prompt(R"("system":"Be brief.","stream":false)").json();
  EXPECT_EQ(at(answer, "response"), Json("hello world"));
  EXPECT_EQ(answer.find("message"), nullptr);
  EXPECT_EQ(prompt(),
            "<|im_start|>system\nBe brief.<|im_end|>\n<|im_start|>user\nhi<|im_end|>\n"
            "<|im_start|>assistant\n");
  const TestResponse raw =
      f.post(kOllamaGenerate,
             R"({"prompt":"<|im_start|>user\nhi","raw":true,"template":"{{ .Prompt }}"})");
  EXPECT_EQ(raw.status, 200);
  std::string text;
  for (const Json& line : lines(raw)) text += at(line, "response").as_string();
  EXPECT_EQ(text, "hello world");
  const auto& ids = f.model.engine->last_request().prompt;
  EXPECT_EQ(std::count(ids.begin(), ids.end(), f.model.control("<|im_start|>")), 1);
  EXPECT_NE(prompt().find("user\nhi"), std::string::npos);
  EXPECT_NE(ollama_error(f.prompt(R"("raw":true,"system":"x")")).find("system"), std::string::npos);
}

TEST(ServerOllama, OptionsReachTheSampler) {
  OllamaFixture f;
  const auto sampling = [&] { return f.model.engine->last_request().sampling; };
  ASSERT_EQ(f.prompt(R"("options":{"temperature":0.5,"top_k":7,"top_p":0.25,"min_p":0.125,
      "repeat_penalty":1.5,"repeat_last_n":-1,"seed":42,"num_predict":5,"stop":["zz"],
      "num_ctx":4096,"mirostat":0,"typical_p":1,"num_thread":8,"use_mmap":true,"nobody":1},
      "keep_alive":"5m")")
                .status,
            200);
  EXPECT_EQ(sampling().temperature, 0.5f);
  EXPECT_EQ(sampling().top_k, 7);
  EXPECT_EQ(sampling().top_p, 0.25f);
  EXPECT_EQ(sampling().min_p, 0.125f);
  EXPECT_EQ(sampling().repetition_penalty, 1.5f);
  EXPECT_EQ(sampling().penalty_window, -1);
  EXPECT_EQ(sampling().seed, 42u);
  EXPECT_EQ(sampling().max_tokens, 5);
  // Ollama's own where nobody says anything; and a length is only a bound.
  ASSERT_EQ(f.prompt(R"("options":{"num_predict":100000})").status, 200);
  EXPECT_EQ(sampling().temperature, 0.8f);
  EXPECT_EQ(sampling().top_k, 40);
  EXPECT_EQ(sampling().top_p, 0.9f);
  EXPECT_EQ(sampling().penalty_window, 64);
  EXPECT_GT(sampling().max_tokens, 4000);
  ASSERT_EQ(f.prompt(R"("options":{"repeat_penalty":1.5,"repeat_last_n":0})").status, 200);
  EXPECT_EQ(sampling().repetition_penalty, 1.0f);
  ASSERT_EQ(f.prompt(R"("options":{"repeat_penalty":1.5,"repeat_last_n":33})").status, 200);
  EXPECT_EQ(sampling().penalty_window, 33);
}

TEST(ServerOllama, LogprobsComeWithTheirTokens) {
  OllamaFixture f;
  const Json whole = f.prompt(R"("logprobs":true,"top_logprobs":2,"stream":false)").json();
  size_t streamed = 0;
  for (const Json& line : lines(f.prompt(R"("logprobs":true,"top_logprobs":2)"))) {
    if (const Json* entries = line.find("logprobs")) streamed += entries->as_array().size();
  }
  const Json::Array& entries = at(whole, "logprobs").as_array();
  EXPECT_EQ(entries.size(), 12u);  // with the end
  EXPECT_EQ(streamed, 12u);
  EXPECT_EQ(at(entries[0], "token"), Json("h"));
  EXPECT_EQ(at(entries[0], "top_logprobs").as_array().size(), 2u);
}

TEST(ServerOllama, ARequestWithoutAPromptLoadsTheModel) {
  OllamaFixture f;
  for (std::string_view body : {R"({"model":"tiny"})", R"({"model":"tiny:latest","prompt":"",
      "keep_alive":-1})",
                                R"({"messages":[]})"}) {
    for (std::string_view path : {kOllamaChat, kOllamaGenerate}) {
      const Json answer = f.post(path, body).json();
      EXPECT_EQ(at(answer, "done_reason"), Json("load")) << path << body;
      EXPECT_EQ(at(answer, "done"), Json(true));
      EXPECT_EQ(at(answer, "model"), Json("tiny"));
    }
  }
  EXPECT_EQ(f.model.engine->submitted(), 0);
  EXPECT_EQ(f.post(kOllamaChat, R"({"model":"other"})").status, 404);
}

TEST(ServerOllama, ThinkingIsSwitchedWhereItCanBe) {
  OllamaFixture f("<think>\nHm.\n</think>\n\nFour.");
  const auto message = [&](std::string_view fields) {
    return at(f.chat(fmt::format(R"({},"stream":false)", fields)).json(), "message");
  };
  EXPECT_EQ(at(message(R"("think":true)"), "thinking"), Json("Hm."));
  EXPECT_EQ(message(R"("think":false)").find("thinking"), nullptr);
  EXPECT_EQ(at(message(R"("think":false)"), "content"), Json("Four."));
  EXPECT_NE(ollama_error(f.chat(R"("think":"high")")).find("think \"high\""), std::string::npos);
  ServerFixture silent;
  const TestResponse refused = silent.post(kOllamaGenerate, R"({"prompt":"hi","think":true})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_TRUE(ollama_error(refused).starts_with("think ")) << refused.body;
}

struct HostileField {
  std::string_view name, values;  // a JSON array
};

constexpr HostileField kHostileBoth[] = {
    {"model", R"([1, {}, [], true])"},
    {"stream", R"([0, 1, "true", {}, []])"},
    {"think", R"([0, "much", {}, [], ""])"},
    {"keep_alive", R"([true, "", "5 m", "m", "-", "5x", {}, [], "1h30"])"},
    {"logprobs", R"([1, "true", {}])"},
    {"top_logprobs", R"([-1, 1.5, "2", {}])"},
    {"format", R"(["json", {"type":"object"}, 1])"},
    {"options", R"([1, "x", [], true])"},
    {"images", R"([["aGk="], "x", 1])"},
};
constexpr HostileField kHostileOptions[] = {
    {"temperature", R"([-1, 101, "1", {}, true])"},
    {"top_k", R"([-2, 1.5, "1", 1e99])"},
    {"top_p", R"([0, 1.5, -1, "1"])"},
    {"min_p", R"([-0.1, 1.1, "1"])"},
    {"repeat_penalty", R"([0, -1, 101, "1"])"},
    {"repeat_last_n", R"([-2, 1.5, "1"])"},
    {"presence_penalty", R"([-3, 3, "1"])"},
    {"frequency_penalty", R"([-3, 3, "1"])"},
    {"seed", R"([1.5, "1", 1e99, {}])"},
    {"stop", R"([1, [1], [""], "", {}])"},
    {"num_predict", R"([-3, 1.5, "1", 1e99])"},
    {"num_ctx", R"([0, -1, 1.5, "1", 1e99])"},
    {"mirostat", R"([1, 2, "1"])"},
    {"typical_p", R"([0, 1.5, "1"])"},
    {"tfs_z", R"([0.5])"},
};
constexpr HostileField kHostileGenerate[] = {
    {"prompt", R"([1, [1], ["a"], {}, true])"},
    {"system", R"([1, [], {}])"},
    {"raw", R"([1, "true"])"},
    {"suffix", R"(["x", 1])"},
    {"context", R"([[1, 2], "x", 1])"},
};
constexpr HostileField kHostileChats[] = {
    {"messages", R"([1, "x", {}, [1], [{}], [{"role":"user"}, {"role":"alien","content":"x"}],
       [{"role":"user","content":1}], [{"role":"user","content":"x","images":["aGk="]}],
       [{"role":"assistant","tool_calls":1}], [{"role":"assistant","tool_calls":[1]}]])"},
    {"tools", R"([1, "x", {}, [1], [{}], [{"type":"function","function":{}}]])"},
};

// Each with a message that begins with the field's name.
TEST(ServerOllama, HostileValuesAreRefusedByName) {
  OllamaFixture f;
  const auto check = [&](std::string_view path, std::string_view rest, const HostileField& field,
                         bool in_options) {
    const Json values = *parse_json(field.values);
    for (const Json& value : values.as_array()) {
      Json body = *parse_json(rest);
      std::string name(field.name);
      if (in_options) {
        body.set("options", Json::object().set(field.name, value));
        name = "options." + name;
      } else {
        body.set(field.name, value);
      }
      const TestResponse response = f.post(path, write_json(body));
      EXPECT_EQ(response.status, 400) << path << write_json(body);
      EXPECT_TRUE(ollama_error(response).starts_with(name))
          << write_json(body) << " -> " << response.body;
    }
  };
  const std::string chat = fmt::format("{{{}}}", kHi);
  for (const HostileField& field : kHostileBoth) {
    check(kOllamaChat, chat, field, false);
    check(kOllamaGenerate, R"({"prompt":"hi"})", field, false);
  }
  for (const HostileField& field : kHostileOptions) {
    check(kOllamaChat, chat, field, true);
    check(kOllamaGenerate, R"({"prompt":"hi"})", field, true);
  }
  for (const HostileField& field : kHostileGenerate) {
    check(kOllamaGenerate, R"({"prompt":"hi"})", field, false);
  }
  for (const HostileField& field : kHostileChats) check(kOllamaChat, chat, field, false);
  EXPECT_EQ(f.model.engine->submitted(), 0);
}

TEST(ServerOllama, WhatIsServedNeedsNoPull) {
  OllamaFixture f("x");
  const TestResponse stream = f.post("/api/pull", R"({"model":"tiny:latest"})");
  EXPECT_EQ(stream.headers.at("content-type"), "application/x-ndjson");
  EXPECT_EQ(stream.body, "{\"status\":\"pulling manifest\"}\n{\"status\":\"success\"}\n");
  EXPECT_EQ(f.post("/api/pull", R"({"name":"tiny","stream":false})").body,
            R"({"status":"success"})");
  EXPECT_EQ(f.post("/api/pull", R"({"model":"tiny","stream":1})").status, 400);
  const TestResponse other = f.post("/api/pull", R"({"model":"other"})");
  EXPECT_EQ(other.status, 404);
  EXPECT_NE(ollama_error(other).find("fetches nothing"), std::string::npos) << other.body;
}

TEST(ServerOllama, EveryErrorIsInOllamasForm) {
  ServerOptions options;
  options.api_keys = {"right"};
  OllamaFixture f("x", options);
  constexpr std::string_view kKey = "X-API-Key: right\r\n";
  const TestResponse answers[] = {
      f.get("/api/tags"),
      f.post(kOllamaChat, "{}"),
      f.get("/api/nothing", kKey),
      f.get("/api/chat", kKey),
      f.post(kOllamaChat, "{", kKey),
      f.post(kOllamaChat, "[]", kKey),
      f.post(kOllamaChat, "{}", "X-API-Key: right\r\nOrigin: https://evil.example\r\n"),
      f.post(kOllamaChat, R"({"model":"other","messages":[{"role":"user","content":"x"}]})", kKey),
      f.post("/api/show", R"({"model":"other"})", kKey),
      f.post("/api/show", R"({"model":1})", kKey),
      f.post("/api/pull", R"({"model":"other"})", kKey),
      f.post("/api/push", "{}", kKey),
      f.post("/api/create", "{}", kKey),
      f.post("/api/copy", "{}", kKey),
      f.post("/api/embed", R"({"input":"x"})", kKey),
      f.post("/api/embeddings", R"({"prompt":"x"})", kKey),
  };
  constexpr int kStatuses[] = {401, 401, 404, 405, 400, 400, 403, 404,
                               404, 400, 404, 400, 400, 400, 400, 400};
  for (size_t i = 0; i < std::size(answers); ++i) {
    EXPECT_EQ(answers[i].status, kStatuses[i]) << i;
    EXPECT_NE(ollama_error(answers[i]), "") << i << answers[i].body;
  }
  TestClient client(f.server->port());
  client.send(
      "POST /api/chat HTTP/1.1\r\nHost: x\r\nX-API-Key: right\r\n"
      "Sec-Fetch-Site: none\r\nContent-Type: text/plain\r\nContent-Length: 2\r\n\r\n{}");
  const TestResponse no_json = client.read_response().value();
  EXPECT_EQ(no_json.status, 415);
  EXPECT_NE(ollama_error(no_json), "");
  EXPECT_NE(f.get("/v1/models").json().find("error")->find("message"), nullptr);  // OpenAI's
}

TEST(ServerOllama, WhatIsServedIsShown) {
  OllamaFixture f;
  EXPECT_EQ(f.get("/").body, "Ollama is running");
  EXPECT_FALSE(at(f.get("/api/version").json(), "version").as_string().empty());
  const Json tags = at(f.get("/api/tags").json(), "models");
  ASSERT_EQ(tags.as_array().size(), 2u);
  EXPECT_EQ(at(tags.as_array()[0], "name"), Json("tiny"));
  EXPECT_EQ(at(tags.as_array()[0], "digest").as_string().size(), 64u);
  EXPECT_EQ(at(at(tags.as_array()[0], "details"), "parameter_size"), Json("134.50M"));
  const Json show = f.post("/api/show", R"({"model":"tiny:latest"})").json();
  EXPECT_EQ(at(show, "capabilities"), Json(Json::Array{"completion", "tools", "thinking"}));
  EXPECT_EQ(at(show, "template"), Json(f.model.chat_template->source()));
  // What is served, and not the model's 8192: clients ask for as much.
  EXPECT_EQ(at(at(show, "model_info"), "llama.context_length"), Json(4096));
  const Json running = at(f.get("/api/ps").json(), "models").as_array().at(0);
  EXPECT_EQ(at(running, "context_length"), Json(4096));
  EXPECT_EQ(at(running, "expires_at").as_string().substr(0, 4), "2318");
}

}  // namespace
}  // namespace headrace::server_ollama_test
