// Routes of a server whose model is an encoder, on an engine of fake vectors.
#include <gtest/gtest.h>

#include <array>
#include <cmath>
#include <cstring>
#include <set>
#include <thread>
#include <tuple>

#include <fmt/format.h>

#include "server/embedding_request.h"
#include "server/embedding_session.h"
#include "server/encoder_fixture.h"
#include "server/openapi.h"
#include "server/parameter_table_fixture.h"
#include "server/router.h"
#include "server/score_request.h"
#include "server/server_fixture.h"
#include "text/base64.h"

namespace headrace::server_embeddings_test {
namespace {

// Heads whose logits are the first of what FakeEmbeddingRunner tells: a text's length and its ids.
ClassifierHead one_class(ScoreActivation activation = ScoreActivation::kIdentity) {
  return {.labels = {"relevant"}, .classes = ScoreActivation::kSigmoid, .score = activation};
}
ClassifierHead four_classes() { return {.labels = {"length", "first", "last", "second"}}; }

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
  EncoderServer embeds, scores({}, {}, "tiny", one_class());
  int32_t asked = 0;
  for (const Route& route : routes()) {
    const bool for_heads =
        route.model == ModelClass::kScores || route.model == ModelClass::kClassifies;
    if (route.model != ModelClass::kEmbeds && route.model != ModelClass::kEncodes && !for_heads) {
      continue;
    }
    EncoderServer& f = for_heads ? scores : embeds;
    const TestResponse response = f.post(route.path, example_body(route));
    EXPECT_EQ(response.status, 200) << route.path << response.body;
    ++asked;
  }
  EXPECT_EQ(asked, 14);
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
    if (!status.ok()) {
      EXPECT_EQ(status.field(), "input") << name;
    }
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
    EXPECT_NE(response.body.find("generates no text"), std::string::npos) << path << response.body;
  }
  for (const char* path : {"/health", "/metrics", "/v1/models", "/v1/models/tiny", "/api/tags",
                           "/api/ps", "/load", "/model_info"}) {
    EXPECT_EQ(f.get(path).status, 200) << path;
  }
  EXPECT_EQ(f.post("/tokenize", R"({"prompt":"ab"})").status, 200);
  EXPECT_EQ(f.post("/detokenize", R"({"tokens":[3]})").status, 200);
  EXPECT_NE(f.post("/api/show", R"({"model":"tiny"})").body.find("embedding"), std::string::npos);
}

TEST(ServerEmbeddings, WhatAModelDoesNotDoIsRefusedByItsPath) {
  EncoderServer embeds, scores({}, {}, "tiny", one_class()),
      classes({}, {}, "tiny", four_classes());
  const auto refused = [](EncoderServer& f, const char* path, std::string_view word) {
    const TestResponse response = f.post(path, "{}");
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find(path), std::string::npos) << response.body;
    EXPECT_NE(response.body.find(word), std::string::npos) << response.body;
  };
  refused(embeds, "/classify", "no head for classes");
  refused(scores, "/v1/embeddings", "gives no embeddings");
  refused(scores, "/api/embed", "it answers /v1/rerank");
  for (const char* path : {"/rerank", "/v1/rerank", "/v2/rerank", "/reranking", "/score"}) {
    refused(classes, path, "the model tells 4 classes");
  }
  EXPECT_EQ(scores.get("/api/tags").status, 200);
  EXPECT_EQ(scores.post("/api/show", "{}").body.find("\"embedding\""), std::string::npos);
  ServerFixture decoder;
  for (const char* path : {"/rerank", "/v1/score", "/classify", "/pooling"}) {
    const TestResponse response = decoder.post(path, "{}");
    EXPECT_EQ(response.status, 400) << path;
    EXPECT_NE(response.body.find("--embedding"), std::string::npos) << response.body;
  }
}

Json answer_of(const TestResponse& response) {
  EXPECT_EQ(response.status, 200) << response.body;
  return parse_json(response.body).value();
}

// [place, score] of each result.
std::vector<std::pair<int64_t, double>> results_of(const Json& answer) {
  std::vector<std::pair<int64_t, double>> results;
  for (const Json& item : at(answer, "results").as_array()) {
    results.emplace_back(at(item, "index").as_int(), at(item, "relevance_score").as_double());
  }
  return results;
}
using Results = std::vector<std::pair<int64_t, double>>;

// A pair of texts of a and b tokens has a + b + 3, and the fake's score is that.
TEST(ServerScores, ReranksTheBestFirst) {
  EncoderServer f({}, {}, "tiny", one_class());
  const TestResponse response = f.post(
      "/v1/rerank",
      R"({"model":"tiny","query":"q","documents":["x",{"text":"xyz"},"","xy"],"user":"me"})");
  const Json answer = answer_of(response);
  EXPECT_EQ(results_of(answer), (Results{{1, 7}, {3, 6}, {0, 5}, {2, 4}}));
  EXPECT_EQ(at(at(answer, "usage"), "total_tokens"), Json(5 + 7 + 4 + 6));
  EXPECT_EQ(at(answer, "model"), Json("tiny"));
  const Json& best = at(answer, "results").as_array().front();
  EXPECT_EQ(at(at(best, "document"), "text"), Json("xyz"));
  const Json few = answer_of(f.post(
      "/v2/rerank",
      R"({"query":{"text":"q"},"documents":["x","xy"],"top_n":1,"return_documents":false})"));
  EXPECT_EQ(results_of(few), (Results{{1, 6}}));
  EXPECT_EQ(at(few, "results").as_array().front().find("document"), nullptr);
}

TEST(ServerScores, EqualOnesStayInOrder) {
  EncoderServer f({}, {}, "tiny", one_class());
  const Json answer =
      answer_of(f.post("/rerank", R"({"query":"q","documents":["b","a","c"],"top_n":2})"));
  EXPECT_EQ(results_of(answer), (Results{{0, 5}, {1, 5}}));
}

TEST(ServerScores, TextEmbeddingsInferencesForm) {
  EncoderServer f({}, {}, "tiny", one_class(ScoreActivation::kSigmoid));
  const Json answer = answer_of(f.post("/rerank", R"({"query":"q","texts":["x","xy"]})"));
  ASSERT_EQ(answer.as_array().size(), 2u);
  EXPECT_EQ(at(answer.as_array()[0], "index"), Json(1));
  EXPECT_NEAR(at(answer.as_array()[0], "score").as_double(), 1 / (1 + std::exp(-6.0)), 1e-6);
  EXPECT_EQ(answer.as_array()[0].find("text"), nullptr);
  const Json raw = answer_of(
      f.post("/rerank", R"({"query":"q","texts":["x"],"raw_scores":true,"return_text":true})"));
  EXPECT_EQ(at(raw.as_array()[0], "score"), Json(5.0));
  EXPECT_EQ(at(raw.as_array()[0], "text"), Json("x"));
}

std::vector<double> scores_in(const Json& answer) {
  std::vector<double> scores;
  for (const Json& item : at(answer, "data").as_array()) {
    EXPECT_EQ(at(item, "object"), Json("score"));
    EXPECT_EQ(at(item, "index").as_int(), static_cast<int64_t>(scores.size()));
    scores.push_back(at(item, "score").as_double());
  }
  return scores;
}
using Scores = std::vector<double>;

TEST(ServerScores, EveryFormOfPairs) {
  EncoderServer f({}, {}, "tiny", one_class());
  const auto scores = [&](std::string_view body) {
    return scores_in(answer_of(f.post("/score", body)));
  };
  EXPECT_EQ(scores(R"({"text_1":"a","text_2":"b"})"), (Scores{5}));
  EXPECT_EQ(scores(R"({"text_1":"a","text_2":["b","xy"]})"), (Scores{5, 6}));
  EXPECT_EQ(scores(R"({"text_1":["a","xyz"],"text_2":["b","xy"]})"), (Scores{5, 8}));
  EXPECT_EQ(scores(R"({"queries":["a"],"documents":["b","xy"]})"), (Scores{5, 6}));
  EXPECT_EQ(scores(R"({"queries":"a","items":"b"})"), (Scores{5}));
  EXPECT_EQ(scores(R"({"data_1":"a","data_2":{"text":"b"}})"), (Scores{5}));
}

TEST(ServerScores, PairsAreCutAsTransformersCutThem) {
  EncoderServer f({}, {}, "tiny", one_class());
  const std::string text(kLongText);
  const TestResponse refused =
      f.post("/score", fmt::format(R"({{"text_1":"a","text_2":["b","{}"]}})", text));
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("pair 1 has more than the 16 tokens"), std::string::npos)
      << refused.body;
  const auto length = [&](std::string_view fields) {
    const TestResponse response =
        f.post("/rerank", fmt::format(R"({{"query":"ab","documents":["{}"],{}}})", text, fields));
    return results_of(answer_of(response)).front().second;
  };
  EXPECT_EQ(length(R"("truncate_prompt_tokens":-1)"), 16);
  EXPECT_EQ(length(R"("truncate_prompt_tokens":9)"), 9);
  const double query = length(R"("max_tokens_per_doc":1)") - 3 - 1;  // its tokens
  EXPECT_EQ(length(R"("max_tokens_per_doc":4)"), query + 3 + 4);
  const TestResponse tei =
      f.post("/rerank", fmt::format(R"({{"query":"ab","texts":["{}"],"truncate":true}})", text));
  EXPECT_EQ(at(answer_of(tei).as_array()[0], "score"), Json(16.0));
}

TEST(ServerScores, AnEmbeddersScoresAreCosines) {
  EncoderServer f;  // vectors of [length, first id, last id, 0]
  const Json same = answer_of(f.post("/v1/score", R"({"text_1":"ab","text_2":["ab","b"]})"));
  const Scores scores = scores_in(same);
  EXPECT_NEAR(scores[0], 1.0, 1e-12);
  const double bos = f.text.tokenizer->vocab().bos, b = f.text.byte_token('b');
  const TestResponse vector = f.embed(R"({"input":"ab"})");
  const std::vector<double> ab =
      numbers_of(at(row_of(parse_json(vector.body).value(), 0), "embedding"));
  const double product = ab[0] * 2 + ab[1] * bos + ab[2] * b;
  EXPECT_NEAR(scores[1], product / std::hypot(ab[0], ab[1], ab[2]) / std::hypot(2, bos, b), 1e-12);
  const Json ranks = answer_of(f.post("/rerank", R"({"query":"ab","documents":["b","ab"]})"));
  EXPECT_EQ(results_of(ranks).front().first, 1);
  EXPECT_EQ(f.post("/score", R"({"text_1":"a","text_2":""})").status,
            f.embed(R"({"input":""})").status);
}

TEST(ServerScores, ClassesHaveLabelsAndProbabilities) {
  EncoderServer f({}, {}, "tiny", four_classes());
  const Json answer = answer_of(f.post("/classify", R"({"input":[[5,6,7],[9]]})"));
  const Json& first = row_of(answer, 0);
  EXPECT_EQ(at(first, "label"), Json("last"));
  EXPECT_EQ(at(first, "num_classes"), Json(4));
  const std::vector<double> probs = numbers_of(at(first, "probs"));
  const double sum = std::exp(3.0) + std::exp(5.0) + std::exp(7.0) + 1;
  EXPECT_NEAR(probs[2], std::exp(7.0) / sum, 1e-6);
  EXPECT_NEAR(probs[0] + probs[1] + probs[2] + probs[3], 1.0, 1e-6);
  const Json raw = answer_of(f.post("/classify", R"({"input":[5,6,7],"use_activation":false})"));
  EXPECT_EQ(numbers_of(at(row_of(raw, 0), "probs")), (Scores{3, 5, 7, 0}));
  EncoderServer one({}, {}, "tiny", one_class());
  const Json relevant = answer_of(one.post("/classify", R"({"input":[5]})"));
  EXPECT_NEAR(numbers_of(at(row_of(relevant, 0), "probs"))[0], 1 / (1 + std::exp(-1.0)), 1e-6);
}

TEST(ServerScores, PoolingGivesWhatTheModelDoes) {
  EncoderServer embeds, classes({}, {}, "tiny", four_classes());
  const Json vector = answer_of(embeds.post("/pooling", R"({"input":[3,4],"task":"embed"})"));
  EXPECT_EQ(at(row_of(vector, 0), "object"), Json("pooling"));
  EXPECT_EQ(numbers_of(at(row_of(vector, 0), "data")), (Scores{2, 3, 4, 0}));
  const Json raw = answer_of(
      classes.post("/pooling", R"({"input":[5,6],"task":"classify","use_activation":false})"));
  EXPECT_EQ(numbers_of(at(row_of(raw, 0), "data")), (Scores{2, 5, 6, 0}));
  const std::tuple<EncoderServer*, const char*, const char*> kRefused[] = {
      {&embeds, R"({"input":"a","task":"classify"})", "task"},
      {&embeds, R"({"input":"a","task":"token_embed"})", "task"},
      {&embeds, R"({"input":"a","use_activation":false})", "use_activation"},
      {&classes, R"({"input":"a","task":"embed"})", "task"},
      {&classes, R"({"input":"a","dimensions":2})", "dimensions"},
  };
  for (const auto& [f, body, field] : kRefused) {
    const TestResponse response = f->post("/pooling", body);
    EXPECT_EQ(response.status, 400) << body;
    const Json error = at(parse_json(response.body).value(), "error");
    EXPECT_EQ(at(error, "param"), Json(field)) << response.body;
  }
  EXPECT_EQ(embeds.embed(R"({"input":"a","use_activation":false})").status, 400);
}

TEST(ServerScores, A400NamesTheField) {
  EncoderServer f({}, {}, "tiny", one_class());
  const std::tuple<const char*, const char*, const char*> kCases[] = {
      {"/score", R"({})", "text_1"},
      {"/score", R"({"text_1":"a"})", "text_2"},
      {"/score", R"({"text_1":"a","text_2":[]})", "text_2"},
      {"/score", R"({"text_1":"a","text_2":["b",5]})", "text_2"},
      {"/score", R"({"text_1":"a","text_2":[{"image":"b"}]})", "text_2"},
      {"/score", R"({"text_1":["a","b"],"text_2":"b"})", "text_1"},
      {"/score", R"({"text_1":"a","queries":"a","text_2":"b"})", "queries"},
      {"/score", R"({"text_1":"a","text_2":"b","truncate_prompt_tokens":0})",
       "truncate_prompt_tokens"},
      {"/score", R"({"text_1":"a","text_2":"b","truncate_prompt_tokens":3})",
       "truncate_prompt_tokens"},
      {"/score", R"({"text_1":"a","text_2":"b","truncate_prompt_tokens":17})",
       "truncate_prompt_tokens"},
      {"/score", R"({"text_1":"a","text_2":"b","priority":1})", "priority"},
      {"/rerank", R"({"documents":["a"]})", "query"},
      {"/rerank", R"({"query":"a"})", "documents"},
      {"/rerank", R"({"query":["a"],"documents":["a"]})", "query"},
      {"/rerank", R"({"query":"a","documents":["a"],"top_n":-1})", "top_n"},
      {"/rerank", R"({"query":"a","documents":["a"],"rank_fields":["x"]})", "rank_fields"},
      {"/rerank", R"({"query":"a","documents":["a"],"max_tokens_per_doc":0})",
       "max_tokens_per_doc"},
      {"/rerank", R"({"query":"a","texts":["a"],"truncation_direction":"Left"})",
       "truncation_direction"},
      {"/classify", R"({})", "input"},
      {"/classify", R"({"input":"a","dimensions":1})", "dimensions"},
  };
  for (const auto& [path, body, field] : kCases) {
    const TestResponse response = f.post(path, body);
    EXPECT_EQ(response.status, 400) << body;
    const Json answer = parse_json(response.body).value();
    EXPECT_EQ(at(at(answer, "error"), "param"), Json(field)) << body << response.body;
  }
  EXPECT_EQ(f.post("/score", R"({"text_1":"a","text_2":"b","model":"other"})").status, 404);
  std::string many = "[\"a\"";
  for (int i = 0; i < 2048; ++i) many += ",\"a\"";
  EXPECT_EQ(f.post("/rerank", fmt::format(R"({{"query":"q","documents":{}]}})", many)).status, 400);
}

TEST(ScoreFields, HostileValues) {
  const std::set<std::string> ranks = {"0", "2^31-1"};
  const Json scores = Json::object().set("text_1", "a").set("text_2", "b");
  const auto parse_score = [](const Json& body) {
    return parse_score_request(body, kContext).status();
  };
  // Names of a side that is there already are refused with whatever they hold.
  const Accepted score_rows = {{"model", kTexts},
                               {"text_1", {}},
                               {"queries", {}},
                               {"data_1", {}},
                               {"text_2", {}},
                               {"documents", {}},
                               {"items", {}},
                               {"data_2", {}},
                               {"user", kTexts},
                               {"use_activation", kOnlyTrue},
                               {"truncate_prompt_tokens", {"-1"}}};
  check_table<ScoreRequest>(score_fields(), score_rows, scores, parse_score, {"text_1", "text_2"});
  const Json rerank = Json::object().set("query", "a").set("documents", "b");
  const auto parse_rerank = [](const Json& body) {
    return parse_rerank_request(body, kContext).status();
  };
  const Accepted rerank_rows = {{"model", kTexts},
                                {"query", {}},
                                {"documents", {}},
                                {"top_n", ranks},
                                {"return_documents", kOnlyTrue},
                                {"max_tokens_per_doc", {}},
                                {"truncate_prompt_tokens", {"-1"}},
                                {"use_activation", kOnlyTrue},
                                {"user", kTexts}};
  check_table<ScoreRequest>(rerank_fields(), rerank_rows, rerank, parse_rerank,
                            {"query", "documents"});
  const Json tei = Json::object().set("query", "a").set("texts", "b");
  const auto parse_tei = [](const Json& body) {
    return parse_tei_rerank_request(body, kContext).status();
  };
  const Accepted tei_rows = {{"query", {}},
                             {"texts", {}},
                             {"raw_scores", kOnlyTrue},
                             {"return_text", kOnlyTrue},
                             {"truncate", kOnlyTrue}};
  check_table<ScoreRequest>(tei_rerank_fields(), tei_rows, tei, parse_tei, {"query", "texts"});
  for (const auto& [name, value] : hostile_values()) {
    const Status query = parse_rerank(Json(rerank).set("query", value));
    EXPECT_EQ(query.ok(), kAnyText.contains(name)) << name;
    if (!query.ok()) {
      EXPECT_EQ(query.field(), "query") << name;
    }
    const Status documents = parse_rerank(Json(rerank).set("documents", value));
    EXPECT_EQ(documents.ok(), kAnyText.contains(name)) << name;
    if (!documents.ok()) {
      EXPECT_EQ(documents.field(), "documents") << name;
    }
  }
}

TEST(EmbeddingFields, HostileValuesOfPooling) {
  const Json base = Json::object().set("input", "a");
  const auto parse = [](const Json& body) {
    return parse_pooling_request(body, kContext).status();
  };
  check_table<EmbeddingRequest>(pooling_fields(), {{"use_activation", kOnlyTrue}, {"task", {}}},
                                base, parse);
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
    EXPECT_NE(response.body.find("--embedding"), std::string::npos) << response.body;
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
  void end_stream(std::string_view) override {}
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
  plan.texts.assign(400, {.ids = {5, 6}});
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
}  // namespace headrace::server_embeddings_test
