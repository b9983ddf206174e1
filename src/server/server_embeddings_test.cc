// Routes of a server whose model is an encoder, on an engine of fake vectors.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <thread>

#include <fmt/format.h>

#include "engine/fake_embedding_runner.h"
#include "server/embedding_request.h"
#include "server/embedding_session.h"
#include "server/openapi.h"
#include "server/parameter_table_fixture.h"
#include "server/router.h"
#include "server/server_fixture.h"
#include "text/base64.h"

namespace headrace {
namespace {

struct EncoderServer {
  explicit EncoderServer(ServerOptions options = {}, EmbeddingOptions engine_options = {},
                         std::string name = "tiny") {
    auto made = std::make_unique<FakeEmbeddingRunner>();
    runner = made.get();
    engine = EmbeddingEngine::create(engine_options, std::move(made));
    options.port = 0;
    options.handle_signals = false;
    options.allowed_hosts.push_back("x");
    server = Server::create(std::move(options)).value();
    CHECK(server->start().ok());
    CHECK(server
              ->set_ready({.embedder = engine.get(),
                           .tokenizer = text.tokenizer.get(),
                           .names = {std::move(name)},
                           .max_model_len = 16,
                           .facts = {.path = "tiny", .architecture = "bert"}})
              .ok());
  }
  ~EncoderServer() { runner->paused = false; }
  TestResponse post(std::string_view path, std::string_view json, std::string_view headers = "") {
    return TestClient(server->port()).post_text(path, json, headers).value();
  }
  TestResponse get(std::string_view path) { return TestClient(server->port()).get(path).value(); }
  TestResponse embed(std::string_view json) { return post("/v1/embeddings", json); }
  bool in_a_pass() {
    return eventually([&] { return !runner->passes().empty(); });
  }

  TestModel text;
  FakeEmbeddingRunner* runner;
  std::unique_ptr<EmbeddingEngine> engine;
  std::unique_ptr<Server> server;
};

// Of more than the 16 tokens that a text has.
constexpr std::string_view kLongText = "q1w2e3r4t5y6u7i8";

std::string embeddings_request(std::string_view json) {
  return fmt::format(
      "POST /v1/embeddings HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
      "Content-Length: {}\r\n\r\n{}",
      json.size(), json);
}

std::vector<double> numbers_of(const Json& array) {
  std::vector<double> numbers;
  for (const Json& number : array.as_array()) numbers.push_back(number.as_double());
  return numbers;
}
const Json& row_of(const Json& answer, size_t i) { return at(answer, "data").as_array().at(i); }

TEST(ServerEmbeddings, ExamplesOfTheDocumentAreAnswered) {
  EncoderServer f;
  int32_t asked = 0;
  for (const Route& route : routes()) {
    if (route.model != ModelClass::kEmbeds) continue;
    EXPECT_EQ(f.post(route.path, example_body(route)).status, 200) << route.path;
    ++asked;
  }
  EXPECT_EQ(asked, 3);
}

TEST(ServerEmbeddings, EveryFormOfInput) {
  EncoderServer f;
  const auto vectors = [&](std::string_view input) {
    const TestResponse response = f.embed(fmt::format(R"({{"input":{}}})", input));
    EXPECT_EQ(response.status, 200) << response.body;
    std::vector<std::vector<double>> rows;
    const Json answer = parse_json(response.body).value();
    for (const Json& row : at(answer, "data").as_array()) {
      EXPECT_EQ(at(row, "index").as_int(), static_cast<int64_t>(rows.size()));
      rows.push_back(numbers_of(at(row, "embedding")));
    }
    return rows;
  };
  using Rows = std::vector<std::vector<double>>;
  const double bos = f.text.tokenizer->vocab().bos;
  const double a = f.text.byte_token('a'), b = f.text.byte_token('b');
  EXPECT_EQ(vectors(R"("a")"), (Rows{{2, bos, a, 0}}));
  EXPECT_EQ(vectors(R"(["b","ba"])"), (Rows{{2, bos, b, 0}, {3, bos, a, 0}}));
  EXPECT_EQ(vectors("[5,6,7]"), (Rows{{3, 5, 7, 0}}));
  EXPECT_EQ(vectors("[[5],[6,7]]"), (Rows{{1, 5, 5, 0}, {2, 6, 7, 0}}));
}

TEST(ServerEmbeddings, TheAnswerIsOpenais) {
  EncoderServer f;
  const TestResponse response =
      f.embed(R"({"model":"tiny","input":[[3,4]],"encoding_format":"base64","user":"me"})");
  const Json answer = parse_json(response.body).value();
  EXPECT_EQ(at(answer, "object"), Json("list"));
  EXPECT_EQ(at(answer, "model"), Json("tiny"));
  EXPECT_EQ(at(at(answer, "usage"), "prompt_tokens"), Json(2));
  EXPECT_EQ(at(at(answer, "usage"), "total_tokens"), Json(2));
  EXPECT_EQ(at(row_of(answer, 0), "object"), Json("embedding"));
  const auto bytes = decode_base64(at(row_of(answer, 0), "embedding").as_string());
  ASSERT_TRUE(bytes && bytes->size() == 16);
  std::array<float, 4> vector{};
  std::memcpy(vector.data(), bytes->data(), 16);
  EXPECT_EQ(vector, (std::array<float, 4>{2, 3, 4, 0}));
}

TEST(ServerEmbeddings, FewerDimensionsHaveLengthOneAgain) {
  EncoderServer f;
  const Json answer = parse_json(f.embed(R"({"input":[3,4,4],"dimensions":2})").body).value();
  const std::vector<double> vector = numbers_of(at(row_of(answer, 0), "embedding"));
  ASSERT_EQ(vector.size(), 2u);
  EXPECT_NEAR(vector[0], std::sqrt(0.5), 1e-6);
}

TEST(ServerEmbeddings, LongTextsAreTruncatedWhenAskedOnly) {
  EncoderServer f;
  const std::string text(kLongText);
  const TestResponse refused = f.embed(fmt::format(R"({{"input":["b","{}"]}})", text));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("input[1] has more than the 16 tokens"), std::string::npos);
  const auto length = [&](std::string_view truncate) {
    const TestResponse response =
        f.embed(fmt::format(R"({{"input":"{}","truncate_prompt_tokens":{}}})", text, truncate));
    EXPECT_EQ(response.status, 200) << response.body;
    const Json answer = parse_json(response.body).value();
    return numbers_of(at(row_of(answer, 0), "embedding"))[0];
  };
  EXPECT_EQ(length("-1"), 16);
  EXPECT_EQ(length("5"), 5);
}

TEST(ServerEmbeddings, A400NamesTheField) {
  EncoderServer f;
  const std::pair<const char*, const char*> kCases[] = {
      {R"({})", "input"},
      {R"({"input":[]})", "input"},
      {R"({"input":["a",5]})", "input"},
      {R"({"input":[[1],[]]})", "input"},
      {R"({"input":[1000000]})", "input"},
      {R"({"input":{"a":1}})", "input"},
      {R"({"input":"a","dimensions":0})", "dimensions"},
      {R"({"input":"a","dimensions":5})", "dimensions"},
      {R"({"input":"a","encoding_format":"int8"})", "encoding_format"},
      {R"({"input":"a","truncate_prompt_tokens":0})", "truncate_prompt_tokens"},
      {R"({"input":"a","truncate_prompt_tokens":17})", "truncate_prompt_tokens"},
      {R"({"input":"a","user":5})", "user"},
      {R"({"messages":[]})", "messages"},
      {R"({"input":"a","embed_dtype":"float16"})", "embed_dtype"},
  };
  for (const auto& [body, field] : kCases) {
    const TestResponse response = f.embed(body);
    EXPECT_EQ(response.status, 400) << body;
    const Json answer = parse_json(response.body).value();
    EXPECT_EQ(at(at(answer, "error"), "param"), Json(field)) << body << response.body;
  }
  EXPECT_EQ(f.embed(R"({"input":"a","model":"other"})").status, 404);
  std::string many = "[\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(f.embed(fmt::format(R"({{"input":{}]}})", many)).status, 400);
}

TEST(EmbeddingFields, HostileValues) {
  const Accepted rows = {{"model", kTexts},
                         {"input", {}},
                         {"encoding_format", {}},
                         {"dimensions", {}},
                         {"user", kTexts},
                         {"truncate_prompt_tokens", {"-1"}},
                         {"add_special_tokens", kOnlyTrue}};
  const Json base = Json::object().set("input", "a");
  const auto parse = [](const Json& body) {
    return parse_embedding_request(body, kContext).status();
  };
  check_table<EmbeddingRequest>(embedding_fields(), rows, base, parse, {"input"});
  for (const auto& [name, value] : hostile_values()) {
    Json body = base;
    const Status status = parse(body.set("input", value));
    EXPECT_EQ(status.ok(), kAnyText.contains(name) || name == "array") << name;
    if (!status.ok()) EXPECT_EQ(status.field(), "input") << name;
  }
}

TEST(ServerEmbeddings, OllamasRoutes) {
  EncoderServer f;
  const TestResponse list =
      f.post("/api/embed", R"({"model":"tiny:latest","input":["ba","q1w2e3r4t5y6u7i8"]})");
  EXPECT_EQ(list.status, 200) << list.body;
  const Json answer = parse_json(list.body).value();
  EXPECT_EQ(at(answer, "embeddings").as_array().size(), 2u);
  EXPECT_EQ(at(answer, "prompt_eval_count"), Json(3 + 16));  // truncated, as Ollama does
  EXPECT_EQ(f.post("/api/embed", R"({"input":"q1w2e3r4t5y6u7i8","truncate":false})").status, 400);
  const Json old = parse_json(f.post("/api/embeddings", R"({"prompt":"b"})").body).value();
  EXPECT_EQ(numbers_of(at(old, "embedding"))[0], 2);
  const TestResponse bad = f.post("/api/embeddings", R"({"prompt":5})");
  EXPECT_EQ(bad.status, 400);
  EXPECT_TRUE(at(parse_json(bad.body).value(), "error").is_string());
}

// An encoder's server answers what there is, and says why to all else.
TEST(ServerEmbeddings, RoutesThatGenerateSayWhyNot) {
  EncoderServer f;
  for (const Route& route : routes()) {
    if (route.model != ModelClass::kReady) continue;
    std::string path(route.path);
    if (const size_t id = path.find("{id}"); id != path.npos) path.replace(id, 4, "tiny");
    if (route.method == "DELETE") continue;
    const TestResponse response = route.method == "GET" ? f.get(path) : f.post(path, "{}");
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("is an encoder"), std::string::npos) << path << response.body;
  }
  for (const char* path : {"/health", "/metrics", "/v1/models", "/v1/models/tiny", "/api/tags",
                           "/api/ps", "/load", "/model_info"}) {
    EXPECT_EQ(f.get(path).status, 200) << path;
  }
  EXPECT_EQ(f.post("/tokenize", R"({"prompt":"ab"})").status, 200);
  EXPECT_EQ(f.post("/detokenize", R"({"tokens":[3]})").status, 200);
  EXPECT_NE(f.post("/api/show", "{}").body.find("embedding"), std::string::npos);
}

TEST(ServerEmbeddings, ScoresAreRefusedInWordsOfAnEncoder) {
  EncoderServer f;
  for (const char* path : {"/rerank", "/v1/rerank", "/score", "/classify", "/pooling"}) {
    const TestResponse response = f.post(path, "{}");
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("encoder without a head"), std::string::npos) << response.body;
  }
}

TEST(ServerEmbeddings, TheLoadCountsWhatRunsAndWaits) {
  EncoderServer f;
  EXPECT_EQ(at(parse_json(f.get("/load").body).value(), "server_load"), Json(0));
  f.runner->paused = true;
  TestClient first(f.server->port()), second(f.server->port());
  first.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(f.in_a_pass());
  second.send(embeddings_request(R"({"input":"b"})"));
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 1; }));
  EXPECT_EQ(at(parse_json(f.get("/load").body).value(), "server_load"), Json(2));
  f.runner->paused = false;
  EXPECT_EQ(first.read_response()->status, 200);
  EXPECT_EQ(second.read_response()->status, 200);
}

TEST(ServerEmbeddings, AModelThatGeneratesHasNone) {
  ServerFixture f;
  for (const char* path : {"/v1/embeddings", "/api/embed", "/api/embeddings"}) {
    const TestResponse response = f.post(path, R"({"input":"a"})");
    EXPECT_EQ(response.status, 400);
    EXPECT_NE(response.body.find("serve an encoder"), std::string::npos) << response.body;
  }
}

TEST(ServerEmbeddings, AClientThatLeavesCancels) {
  EncoderServer f;
  f.runner->paused = true;
  TestClient first(f.server->port());
  first.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(f.in_a_pass());
  TestClient leaves(f.server->port());
  leaves.send(embeddings_request(R"({"input":"b"})"));
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 1; }));
  leaves.close();
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 0; }));
  f.runner->paused = false;
  EXPECT_EQ(first.read_response()->status, 200);
  EXPECT_EQ(f.engine->stats().texts, 1u);
}

// Of a peer that left before its handler came to the strand: nobody keeps the observer.
class GoneExchange final : public Exchange {
 public:
  void respond(HttpResponse) override {}
  void begin_stream(HttpResponse) override {}
  void write(std::string_view) override {}
  void end_stream() override {}
  bool over_unsent_limit() const override { return false; }
  void observe(std::shared_ptr<ExchangeObserver>) override {}
  void post(std::function<void()>) override {}
  void call_after(double, std::function<void()>) override {}
};

TEST(ServerEmbeddings, AClientThatLeftBeforeTheStartIsNotComputed) {
  EncoderServer f;
  f.runner->paused = true;
  TestClient first(f.server->port());
  first.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(f.in_a_pass());
  ServerState state({}, *ApiKeys::create({}), {});
  ASSERT_TRUE(state.set_model({.embedder = f.engine.get(), .names = {"tiny"}}).ok());
  EmbeddingPlan plan;
  plan.model = state.models.try_acquire(0);
  plan.texts.assign(400, {5, 6});
  EmbeddingSession::start(state, std::move(plan), std::make_shared<GoneExchange>());
  EXPECT_EQ(f.engine->stats().requests_waiting, 0);
  f.runner->paused = false;
  EXPECT_EQ(first.read_response()->status, 200);
  EXPECT_EQ(f.engine->stats().texts, 1u);
}

TEST(ServerEmbeddings, AFullQueueIs429AndALongOne503) {
  ServerOptions options;
  options.requests.queue_seconds_max = 0.2;
  EncoderServer f(options, {.queued_requests_max = 2});
  f.runner->paused = true;
  TestClient first(f.server->port()), second(f.server->port());
  first.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(f.in_a_pass());
  second.send(embeddings_request(R"({"input":"b"})"));
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 1; }));
  const TestResponse full = f.embed(R"({"input":"c"})");
  EXPECT_EQ(full.status, 429);
  EXPECT_TRUE(full.headers.contains("retry-after"));
  EXPECT_EQ(second.read_response()->status, 503);
  f.runner->paused = false;
  EXPECT_EQ(first.read_response()->status, 200);
}

// Of vectors of 16 bytes.
TEST(ServerEmbeddings, VectorsOfAllRequestsAreBounded) {
  ServerOptions options;
  options.requests.embedding_bytes_max = 64;
  EncoderServer f(options);
  f.runner->paused = true;
  TestClient first(f.server->port()), leaves(f.server->port());
  first.send(embeddings_request(R"({"input":["a","b"]})"));
  ASSERT_TRUE(f.in_a_pass());
  leaves.send(embeddings_request(R"({"input":["a","b"]})"));
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 1; }));
  const TestResponse refused = f.embed(R"({"input":"a"})");
  EXPECT_EQ(refused.status, 429);
  EXPECT_NE(refused.body.find("fewer texts"), std::string::npos) << refused.body;
  EXPECT_TRUE(refused.headers.contains("retry-after"));
  leaves.close();
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests_waiting == 0; }));
  f.runner->paused = false;
  EXPECT_EQ(first.read_response()->status, 200);
  // All of it is given back, by the one that was answered and the one that left.
  EXPECT_TRUE(eventually([&] { return f.embed(R"({"input":["a","b","a","b"]})").status == 200; }));
}

TEST(ServerEmbeddings, ARequestThatIsAloneIsNeverTooMuch) {
  ServerOptions options;
  options.requests.embedding_bytes_max = 1;
  EncoderServer f(options);
  EXPECT_EQ(f.embed(R"({"input":["a","b"]})").status, 200);
}

TEST(ServerEmbeddings, AnAnswerThatNobodyReadsStaysCounted) {
  ServerOptions options;
  options.requests.embedding_bytes_max = 16;
  // The name is in the answer, which then fits in no socket's buffer.
  EncoderServer f(options, {}, std::string(size_t{16} << 20, 'x'));
  TestClient slow(f.server->port());
  slow.send(embeddings_request(R"({"input":"a"})"));
  EXPECT_TRUE(eventually([&] { return f.engine->stats().requests == 1; }));
  std::this_thread::sleep_for(std::chrono::milliseconds(200));  // it has been written
  EXPECT_EQ(f.embed(R"({"input":"b"})").status, 429);
  slow.close();
  EXPECT_TRUE(eventually([&] { return f.embed(R"({"input":"b"})").status == 200; }));
}

TEST(ServerEmbeddings, ADrainFinishesAndACutSaysSo) {
  EncoderServer f;
  f.runner->paused = true;
  TestClient client(f.server->port());
  client.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(f.in_a_pass());
  f.server->drain();
  EXPECT_TRUE(eventually([&] { return f.get("/health").status == 503; }));
  f.runner->paused = false;
  EXPECT_EQ(client.read_response()->status, 200);
  EXPECT_TRUE(f.server->wait());

  EncoderServer g;
  g.runner->paused = true;
  TestClient cut(g.server->port());
  cut.send(embeddings_request(R"({"input":"a"})"));
  ASSERT_TRUE(g.in_a_pass());
  g.server->cut();
  EXPECT_EQ(cut.read_response()->status, 503);
}

}  // namespace
}  // namespace headrace
