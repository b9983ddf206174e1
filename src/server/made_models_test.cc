// Models that clients make of served ones: Modelfiles, what requests get of them, whose they are.
#include "server/made_models.h"

#include <gtest/gtest.h>

#include "server/server_fixture.h"

namespace headrace::made_models_test {
namespace {

std::string parsed_modelfile(std::string_view text) {
  const Result<Json> json = modelfile_json(text);
  return json.ok() ? write_json(*json) : json.status().message();
}

TEST(Modelfile, IsReadAsItsJson) {
  EXPECT_EQ(parsed_modelfile(""), R"({"parameters":{}})");
  EXPECT_EQ(parsed_modelfile("FROM tiny"), R"({"from":"tiny","parameters":{}})");
  EXPECT_EQ(parsed_modelfile("# a comment\n  from  tiny \r\n\nparameter temperature 0.5\n"
                             "PARAMETER stop \"<end> \"\nPARAMETER stop b\nPARAMETER num_ctx 64\n"
                             "SYSTEM \"\"\"You are\n\"Mario\".\"\"\"\nLICENSE MIT"),
            R"({"from":"tiny","system":"You are\n\"Mario\".","license":"MIT",)"
            R"("parameters":{"temperature":0.5,"stop":["<end> ","b"],"num_ctx":64}})");
  EXPECT_EQ(parsed_modelfile("SYSTEM a b  c"), R"({"system":"a b  c","parameters":{}})");
}

TEST(Modelfile, ErrorsNameTheLine) {
  EXPECT_TRUE(parsed_modelfile("FROM a\n\nRUN ls").starts_with("modelfile line 3: RUN is no word"));
  EXPECT_TRUE(
      parsed_modelfile("FROM a\nPARAMETER stop").starts_with("modelfile line 2: PARAMETER"));
  EXPECT_EQ(parsed_modelfile("SYSTEM \"\"\"a\nb"), "modelfile line 1: \"\"\" is not closed");
  std::string comments, parameters;
  for (int i = 0; i < 200'000; ++i) comments += "#\n";
  EXPECT_EQ(parsed_modelfile(comments), "modelfile has 400000 bytes, of which 262144 are taken");
  EXPECT_EQ(parsed_modelfile(comments.substr(0, 200'000) + "RUN ls").substr(0, 22),
            "modelfile line 100001:");
  for (int i = 0; i < 300; ++i) parameters += "PARAMETER stop x\n";
  EXPECT_EQ(parsed_modelfile(parameters), "modelfile has more than 256 lines with PARAMETER");
}

Json applied(std::string_view path, std::string_view body) {
  MadeModel model;
  model.base = "tiny";
  model.system = "S";
  model.parameters = *parse_json(
      R"({"temperature":0.5,"repeat_penalty":1.2,"num_predict":7,"num_ctx":64,"stop":["x"],"repeat_last_n":33})");
  Json json = *parse_json(body);
  apply_made_model(model, path, json);
  return json;
}

TEST(MadeModels, SayWhatRequestsDoNot) {
  EXPECT_EQ(
      write_json(applied("/api/chat", R"({"model":"m","messages":[{"role":"user","content":"q"}],)"
                                      R"("options":{"num_predict":1}})")),
      R"({"model":"tiny","messages":[{"role":"system","content":"S"},)"
      R"({"role":"user","content":"q"}],"options":{"temperature":0.5,"repeat_penalty":1.2,)"
      R"("num_predict":1,"num_ctx":64,"stop":["x"],"repeat_last_n":33}})");
  EXPECT_EQ(
      write_json(applied("/v1/chat/completions",
                         R"({"model":"m","messages":[{"role":"system","content":"own"}],)"
                         R"("temperature":1,"max_completion_tokens":3})")),
      R"({"model":"tiny","messages":[{"role":"system","content":"own"}],"temperature":1,)"
      R"("max_completion_tokens":3,"repetition_penalty":1.2,"repeat_last_n":33,"stop":["x"]})");
  EXPECT_EQ(*applied("/v1/completions", R"({"prompt":"p"})").find("max_tokens"), Json(7));
  EXPECT_EQ(*applied("/v1/completions", R"({"prompt":"p"})").find("repeat_last_n"), Json(33));
  EXPECT_EQ(applied("/v1/completions", R"({"prompt":"p"})").find("messages"), nullptr);
  EXPECT_EQ(*applied("/api/generate", R"({"prompt":"p"})").find("system"), Json("S"));
  EXPECT_EQ(*applied("/api/generate", R"({"prompt":"p","system":"own"})").find("system"),
            Json("own"));
  EXPECT_EQ(applied("/api/generate", R"({"prompt":"p","raw":true})").find("system"), nullptr);
  // What is wrong is left to its reader.
  EXPECT_EQ(*applied("/api/chat", R"({"options":1,"messages":1})").find("options"), Json(1));
}

TEST(MadeModels, ParametersThatAreNullSayNothing) {
  MadeModel model;
  model.base = "tiny";
  model.parameters = *parse_json(R"({"num_predict":null,"temperature":null,"stop":null})");
  for (const char* path : {"/v1/completions", "/v1/chat/completions"}) {
    Json body = *parse_json(R"({"model":"m","prompt":"p"})");
    apply_made_model(model, path, body);
    EXPECT_EQ(write_json(body), R"({"model":"tiny","prompt":"p"})");
  }
}

TEST(MadeModels, ParametersHaveEachProtocolsNames) {
  const Json message = applied("/v1/messages", R"({"max_tokens":3})");
  EXPECT_EQ(write_json(*message.find("stop_sequences")), R"(["x"])");
  EXPECT_EQ(*message.find("max_tokens"), Json(3));
  EXPECT_EQ(*message.find("system"), Json("S"));
  EXPECT_EQ(message.find("stop"), nullptr);
  EXPECT_EQ(*applied("/v1/messages", R"({"system":"own"})").find("system"), Json("own"));
  const Json response = applied("/v1/responses", R"({"input":"q"})");
  EXPECT_EQ(*response.find("max_output_tokens"), Json(7));
  EXPECT_EQ(*response.find("instructions"), Json("S"));
  EXPECT_EQ(write_json(applied("/tokenize", R"({"prompt":"p"})")),
            R"({"prompt":"p","model":"tiny"})");
}

// Whatever a request calls a parameter, it says it.
TEST(MadeModels, OtherNamesOfAParameterCount) {
  for (const char* name : {"n_predict", "max_new_tokens", "max_completion_tokens"}) {
    const Json body =
        applied("/v1/completions", std::string(R"({"prompt":"p",")") + name + "\":3}");
    EXPECT_EQ(body.find("max_tokens"), nullptr) << name;
  }
  EXPECT_EQ(applied("/v1/completions", R"({"prompt":"p","repeat_penalty":1.1})")
                .find("repetition_penalty"),
            nullptr);
}

TEST(MadeModels, AreBoundedForEachOwner) {
  MadeModels models;
  const auto put = [&](const std::string& owner, const std::string& name) {
    MadeModel model;
    model.name = name;
    return models.put(owner, std::move(model));
  };
  for (size_t i = 0; i < MadeModels::kPerOwnerMax; ++i) {
    EXPECT_TRUE(put("a", std::to_string(i)).ok());
  }
  EXPECT_EQ(put("a", "more").code(), StatusCode::kExhausted);
  EXPECT_TRUE(put("a", "0").ok());
  EXPECT_TRUE(put("b", "more").ok());
  EXPECT_TRUE(models.find("b", "more:latest"));
  EXPECT_FALSE(models.find("a", "more"));
  EXPECT_FALSE(models.erase("a", "more"));
  EXPECT_TRUE(models.erase("a", "0"));
  EXPECT_TRUE(put("a", "more").ok());
  EXPECT_EQ(models.all("b").size(), 1u);
}

TEST(ServerOllamaModels, AreTheirKeysAlone) {
  ServerOptions options;
  options.api_keys = {ApiKey("one"), ApiKey("two")};
  ServerFixture f({}, "hi", options);
  constexpr std::string_view kOne = "X-API-Key: one\r\n", kTwo = "X-API-Key: two\r\n";
  const std::string ask = R"({"model":"mario","messages":[{"role":"user","content":"q"}]})";
  EXPECT_EQ(f.post("/api/chat", ask, kOne).status, 404);
  EXPECT_EQ(f.post("/api/create",
                   R"({"name":"mario","modelfile":"FROM tiny\nSYSTEM You are Mario."})", kOne)
                .status,
            200);
  EXPECT_EQ(f.post("/api/chat", ask, kOne).status, 200);
  EXPECT_EQ(f.post("/api/chat", ask, kTwo).status, 404);
  EXPECT_EQ(f.post("/api/show", R"({"model":"mario"})", kTwo).status, 404);
  EXPECT_EQ(f.get("/v1/models", kTwo).body.find("mario"), std::string::npos);
  const std::string prompt =
      f.model.tokenizer->decode(f.model.engine->last_request().prompt, false);
  EXPECT_NE(prompt.find("system\nYou are Mario."), std::string::npos) << prompt;
  EXPECT_EQ(f.get("/v1/models/mario", kTwo).status, 404);
}

// What is listed is there, whichever protocol asks for it.
TEST(ServerOllamaModels, AnswerOnEveryRouteOfTexts) {
  ServerFixture f({}, "hi");
  ASSERT_EQ(f.post("/api/create", R"({"model":"mario","from":"tiny","system":"You are Mario.",)"
                                  R"("parameters":{"temperature":0.25}})")
                .status,
            200);
  for (const char* name : {"mario", "mario:latest", "tiny:latest"}) {
    const TestResponse card = f.get(std::string("/v1/models/") + name);
    ASSERT_EQ(card.status, 200) << name << card.body;
    EXPECT_EQ(at(card.json(), "root"), Json("tiny")) << name;
  }
  EXPECT_EQ(f.get("/v1/models/luigi:latest").status, 404);
  const std::string turns = R"("messages":[{"role":"user","content":"q"}])";
  const std::string model = R"({"model":"mario",)";
  // The route, its request, and whether a conversation has the system turn.
  const std::tuple<const char*, std::string, bool> cases[] = {
      {"/v1/chat/completions", turns, true},
      {"/v1/messages", turns + R"(,"max_tokens":5)", true},
      {"/v1/responses", R"("input":"q")", true},
      {"/invocations", turns, true},
      {"/completion", R"("prompt":"q")", false},
      {"/completions", R"("prompt":"q")", false},
      {"/v1/completions", R"("prompt":"q")", false},
      {"/invocations", R"("prompt":"q")", false},
  };
  for (const auto& [path, fields, has_system] : cases) {
    const TestResponse response = f.post(path, model + fields + "}");
    ASSERT_EQ(response.status, 200) << path << response.body;
    const Request request = f.model.engine->last_request();
    const std::string prompt = f.model.tokenizer->decode(request.prompt, false);
    EXPECT_EQ(prompt.find("You are Mario.") != prompt.npos, has_system) << path << prompt;
    EXPECT_EQ(request.sampling.temperature, 0.25f) << path;
    const Json answer = response.json();
    if (const Json* shown = answer.find("model")) {
      EXPECT_EQ(*shown, Json("mario")) << path;
    }
  }
  const int64_t alone =
      at(f.post("/v1/messages/count_tokens", R"({"model":"tiny",)" + turns + "}").json(),
         "input_tokens")
          .as_int();
  EXPECT_GT(
      at(f.post("/v1/messages/count_tokens", model + turns + "}").json(), "input_tokens").as_int(),
      alone);
  EXPECT_NE(f.post("/apply-template", model + turns + "}").body.find("You are Mario."),
            std::string::npos);
  EXPECT_EQ(f.post("/tokenize", model + R"("prompt":"q"})").status, 200);
  EXPECT_EQ(f.post("/detokenize", model + R"("tokens":[1]})").status, 200);
}

}  // namespace
}  // namespace headrace::made_models_test
