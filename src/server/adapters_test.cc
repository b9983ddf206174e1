// Which adapter a request gets: by its model's name, from a bank of made ones.
#include <gtest/gtest.h>

#include "engine/adapter_bank.h"
#include "server/server_fixture.h"

namespace headrace::adapters_test {
namespace {

struct MadeAdapter final : Adapter {
  explicit MadeAdapter(uint64_t own_key) : own_key(own_key) {}
  uint64_t key() const override { return own_key; }
  int64_t bytes() const override { return 0; }
  int32_t rank() const override { return 1; }
  const uint64_t own_key;
};

// Its key is the length of its path.
Result<AdapterBank::Adapters> make_adapter(const AdapterSpec& spec) {
  if (spec.path == "bad") return invalid_argument("bad: it is of another base model");
  return AdapterBank::Adapters(std::make_shared<MadeAdapter>(spec.path.size()));
}

struct AdaptedServer {
  explicit AdaptedServer(bool changes, const std::string& of_all = "") {
    ServedModel served = fixture.model.served();
    served.adapters = &bank;
    served.adapters_change = changes;
    served.adapter_of_all = of_all;
    status = fixture.server->set_ready(std::move(served));
  }
  // The key of the adapter that a request of this name has; 0: none.
  uint64_t key_of(const std::string& name) {
    const TestResponse answer =
        fixture.post(kCompletions, R"({"prompt": "a", "max_tokens": 2, "model": ")" + name + "\"}");
    EXPECT_EQ(answer.status, 200) << answer.body;
    EXPECT_EQ(at(answer.json(), "model").as_string(), name);
    const auto adapter = fixture.model.engine->last_request().adapter_weights;
    return adapter == nullptr ? 0 : adapter->key();
  }
  TestResponse load(std::string_view body) { return fixture.post("/v1/load_lora_adapter", body); }

  AdapterBank bank{2, make_adapter};
  ServerFixture fixture{{}, "hello world", {}, /*ready=*/false};
  const std::string base = fixture.model.served().names.front();
  Status status;
};

TEST(ServerAdapters, TheModelsNameChooses) {
  AdaptedServer f(/*changes=*/true);
  ASSERT_TRUE(f.status.ok());
  EXPECT_EQ(f.key_of(f.base), 0u);
  EXPECT_EQ(f.load(R"({"lora_name": "sql", "lora_path": "a/sql"})").status, 200);
  EXPECT_EQ(f.key_of("sql"), 5u);
  EXPECT_EQ(f.key_of(f.base), 0u);
  const Json models = f.fixture.get("/v1/models").json();
  const Json& card = at(models, "data").as_array().back();
  EXPECT_EQ(at(card, "id").as_string(), "sql");
  EXPECT_EQ(at(card, "root").as_string(), "sql");
  EXPECT_EQ(at(card, "parent").as_string(), f.base);
  EXPECT_EQ(at(f.fixture.get("/v1/models/sql").json(), "parent").as_string(), f.base);
  EXPECT_EQ(f.fixture.post("/v1/unload_lora_adapter", R"({"lora_name": "sql"})").status, 200);
  EXPECT_EQ(f.fixture.post(kCompletions, R"({"prompt": "a", "model": "sql"})").status, 404);
  EXPECT_EQ(f.fixture.get("/v1/models/sql").status, 404);
}

TEST(ServerAdapters, WhatCannotBeLoadedSaysWhy) {
  AdaptedServer f(/*changes=*/true);
  const auto message = [&](std::string_view body) {
    const TestResponse answer = f.load(body);
    EXPECT_EQ(answer.status, 400) << answer.body;
    return answer.body;
  };
  EXPECT_NE(message(R"({"lora_name": "a", "lora_path": "bad"})").find("another base"),
            std::string::npos);
  EXPECT_NE(message(R"({"lora_name": "a"})").find("lora_path"), std::string::npos);
  EXPECT_NE(message(R"({"lora_name": 1, "lora_path": "b"})").find("lora_name"), std::string::npos);
  EXPECT_NE(message(R"({"lora_path": "b", "lora_name": ")" + f.base + "\"}").find("own name"),
            std::string::npos);
  EXPECT_EQ(f.load(R"({"lora_name": "a", "lora_path": "b"})").status, 200);
  EXPECT_NE(message(R"({"lora_name": "a", "lora_path": "bb"})").find("is loaded"),
            std::string::npos);
  EXPECT_EQ(f.load(R"({"lora_name": "a", "lora_path": "bb", "load_inplace": true})").status, 200);
  EXPECT_EQ(f.key_of("a"), 2u);
  EXPECT_EQ(f.fixture.post("/v1/unload_lora_adapter", R"({"lora_name": "c"})").status, 404);
}

TEST(ServerAdapters, OneOfAllIsTheModels) {
  AdapterBank bank(1, make_adapter);
  ASSERT_TRUE(bank.load({.name = "own", .path = "1234", .scale = 0.5}).ok());
  ServerFixture fixture({}, "hello world", {}, /*ready=*/false);
  ServedModel served = fixture.model.served();
  served.adapters = &bank;
  served.adapter_of_all = "own";
  ASSERT_TRUE(fixture.server->set_ready(std::move(served)).ok());
  EXPECT_EQ(fixture.post(kCompletions, R"({"prompt": "a"})").status, 200);
  ASSERT_NE(fixture.model.engine->last_request().adapter_weights, nullptr);
  EXPECT_EQ(fixture.model.engine->last_request().adapter_weights->key(), 4u);
  EXPECT_EQ(fixture.get("/lora-adapters").body, R"([{"id":0,"path":"1234","scale":0.5}])");
  EXPECT_EQ(at(fixture.get("/v1/models").json(), "data").as_array().size(),
            fixture.model.served().names.size());
  // Without --enable-lora none is loaded by a request.
  const TestResponse refused =
      fixture.post("/v1/load_lora_adapter", R"({"lora_name": "a", "lora_path": "b"})");
  EXPECT_EQ(refused.status, 400);
  EXPECT_NE(refused.body.find("--enable-lora"), std::string::npos) << refused.body;
}

TEST(ServerAdapters, ANameMeansOneThing) {
  AdapterBank bank(1, make_adapter);
  ServerFixture fixture({}, "hello world", {}, /*ready=*/false);
  ServedModel served = fixture.model.served();
  ASSERT_TRUE(bank.load({.name = served.names.front(), .path = "x"}).ok());
  served.adapters = &bank;
  EXPECT_NE(fixture.server->set_ready(std::move(served)).message().find("both called"),
            std::string_view::npos);
  // Nor a name of the model's that is listed nowhere: its requests would go to the model.
  ServedModel other = fixture.model.served();
  other.names = {"another"};
  other.other_names = fixture.model.served().names;
  other.adapters = &bank;
  EXPECT_NE(fixture.server->set_ready(std::move(other)).message().find("both called"),
            std::string_view::npos);
}

}  // namespace
}  // namespace headrace::adapters_test
