#include "server/openapi.h"

#include <gtest/gtest.h>

#include <set>
#include <string>
#include <utility>
#include <vector>

#include <fmt/format.h>

#include "server/not_served.h"
#include "server/server_fixture.h"

namespace headrace::openapi_test {
namespace {

std::string lower_method(const Route& route) {
  std::string method;
  for (char c : route.method) method += static_cast<char>(c | 0x20);
  return method;
}

const Json* operation_of(const Json& document, const Route& route) {
  const Json* path = at(document, "paths").find(route.path);
  return path ? path->find(lower_method(route)) : nullptr;
}

std::vector<Json> forms_of_body(const Json& operation) {
  const Json& schema =
      at(at(at(at(operation, "requestBody"), "content"), "application/json"), "schema");
  const Json* any = schema.find("anyOf");
  return any ? std::vector<Json>(any->as_array().begin(), any->as_array().end())
             : std::vector<Json>{schema};
}

bool is_for_encoders(const Route& route) {
  return route.model == ModelClass::kEmbeds || route.model == ModelClass::kScores ||
         route.model == ModelClass::kClassifies || route.model == ModelClass::kEncodes;
}

TEST(OpenApiDocument, HasEveryRouteAndNoOther) {
  const Json document = openapi_document();
  std::set<std::string> ids;
  size_t served = 0;
  for (const Route& route : routes()) {
    if (route.model == ModelClass::kNotServed) continue;
    ++served;
    const Json* operation = operation_of(document, route);
    ASSERT_TRUE(operation) << route.method << " " << route.path;
    EXPECT_TRUE(ids.insert(at(*operation, "operationId").as_string()).second) << route.path;
    const bool open = at(*operation, "security").as_array().empty();
    EXPECT_EQ(open, route.auth == AuthClass::kOpen) << route.path;
    EXPECT_EQ(operation->find("requestBody") != nullptr, route.limit != LimitClass::kNoBody)
        << route.path;
    EXPECT_EQ(operation->find("parameters") != nullptr, route.path.find("{id}") != route.path.npos);
  }
  size_t operations = 0;
  for (const auto& [path, methods] : at(document, "paths").as_object()) {
    operations += methods.as_object().size();
  }
  EXPECT_EQ(operations, served);
}

TEST(OpenApi, WhatIsNotServedSaysWhyNot) {
  ServerFixture f({}, "x");
  for (const Route& route : routes()) {
    if (route.model != ModelClass::kNotServed) continue;
    ASSERT_TRUE(has_reason_not_served(route.path)) << route.path;
    std::string path(route.path);
    if (const size_t id = path.find("{id}"); id != path.npos) path.replace(id, 4, "1");
    TestClient client(f.server->port());
    // It is told by the head: the megabytes of a recording need not be sent.
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: 5000000\r\n\r\n",
                            route.method, path));
    const auto answer = client.read_response();
    ASSERT_TRUE(answer) << path;
    EXPECT_EQ(answer->status, 400) << path;
    EXPECT_NE(answer->body.find(fmt::format("{} is not supported: ", route.path)),
              std::string::npos)
        << answer->body;
  }
}

// A new route with a body gets a row in openapi.cc.
TEST(OpenApiDocument, EveryBodyIsDescribed) {
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson) continue;
    EXPECT_FALSE(example_body(route).empty()) << route.path;
  }
}

TEST(OpenApiDocument, FieldsSayTypeRangeAndWhetherTheyMustBeThere) {
  const Json document = openapi_document();
  for (const Route& route : routes()) {
    if (route.path != kChatPath) continue;
    const Json body = forms_of_body(*operation_of(document, route)).front();
    EXPECT_EQ(write_json(at(body, "required")), R"(["messages"])");
    const Json& properties = at(body, "properties");
    EXPECT_EQ(write_json(at(properties, "temperature")),
              R"({"type":"number","minimum":0,"maximum":100})");
    EXPECT_EQ(write_json(at(properties, "top_k")),
              R"({"type":"integer","minimum":-1,"maximum":2147483647})");
    EXPECT_EQ(write_json(at(properties, "stream")), R"({"type":"boolean"})");
    EXPECT_EQ(write_json(at(at(properties, "messages"), "type")), R"("array")");
  }
}

// Routes of encoders are asked of a server that has one (server_embeddings_test.cc).
TEST(OpenApi, ExamplesAreAnswered) {
  ServerFixture f({}, "hello world");
  for (const Route& route : routes()) {
    const std::string_view example = example_body(route);
    if (example.empty() || route.path == "/v1/batches" || route.path == "/infill") continue;
    if (route.path.starts_with("/v1/uploads")) continue;  // the fixture keeps no files
    if (is_for_encoders(route)) continue;
    if (route.path.ends_with("load_lora_adapter")) continue;  // the fixture has no adapters
    if (route.path == "/models/unload") continue;             // the fixture's model stays
    TestClient client(f.server->port());
    client.send(fmt::format("{} {} HTTP/1.1\r\nHost: x\r\nContent-Length: {}\r\n\r\n{}",
                            route.method, route.path, example.size(), example));
    EXPECT_EQ(client.read_response().value().status, 200) << route.path;
  }
}

// Bodies in which one field has a value that its schema does not take.
std::vector<std::pair<std::string, Json>> wrong_bodies(const Json& schema, const Json& good) {
  std::vector<std::pair<std::string, Json>> bodies;
  const Json* properties = schema.find("properties");
  if (!properties) return bodies;
  for (const auto& [name, field] : properties->as_object()) {
    if (field.as_object().empty()) continue;  // its reader takes values of several types
    const Json* type = field.find("type");
    Json body = good;
    body.set(name, type && *type == Json("boolean") ? Json("yes") : Json(true));
    bodies.emplace_back(name, body);
    if (!good.find(name) || !good.find(name)->is_object()) continue;
    for (auto& [inner, inside] : wrong_bodies(field, *good.find(name))) {
      bodies.emplace_back(inner, body.set(name, std::move(inside)));
    }
  }
  return bodies;
}

// What the document says of a field is what its reader holds it to.
TEST(OpenApi, DescribedFieldsAreRead) {
  ServerFixture f({}, "hello world");
  TestClient client(f.server->port());
  const Json document = openapi_document();
  size_t fields = 0;
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson || example_body(route).empty()) continue;
    if (is_for_encoders(route)) continue;
    for (const Json& form : forms_of_body(*operation_of(document, route))) {
      for (const auto& [name, body] : wrong_bodies(form, at(form, "example"))) {
        // Of text generation inference the path says it.
        if (name == "stream" && body.find("inputs") && route.path != "/") continue;
        const auto answer = client.post(route.path, body);
        ASSERT_TRUE(answer);
        EXPECT_EQ(answer->status, 400) << route.path << " " << name;
        EXPECT_NE(answer->body.find(name), std::string::npos) << route.path << " " << answer->body;
        ++fields;
      }
    }
  }
  EXPECT_GT(fields, 300u);
}

// A value that the schema of a field takes; null: it does not say of which type.
Json sample_of(const Json& schema) {
  if (const Json* any = schema.find("anyOf")) return sample_of(any->as_array().front());
  if (const Json* words = schema.find("enum")) return words->as_array().front();
  const Json* type = schema.find("type");
  if (!type || !type->is_string()) return {};
  const std::string& name = type->as_string();
  if (name == "boolean") return Json(true);
  if (name == "string") return Json("x");
  if (name == "integer") return Json(1);
  if (name == "number") return Json(0.5);
  return {};
}

// What the document lists is not what the route refuses: as a field that it does not have, or as
// one that other routes take.
TEST(OpenApi, DescribedFieldsAreNotRefused) {
  ServerFixture f({}, "hello world");
  TestClient client(f.server->port());
  const Json document = openapi_document();
  size_t fields = 0;
  for (const Route& route : routes()) {
    if (route.limit != LimitClass::kJson || is_for_encoders(route)) continue;
    if (example_body(route).empty() || route.path.starts_with("/models/")) continue;
    for (const Json& form : forms_of_body(*operation_of(document, route))) {
      const Json* properties = form.find("properties");
      if (!properties) continue;
      for (const auto& [name, schema] : properties->as_object()) {
        const Json sample = sample_of(schema);
        if (sample.is_null() || at(form, "example").find(name)) continue;
        const auto answer = client.post(route.path, Json(at(form, "example")).set(name, sample));
        ASSERT_TRUE(answer) << route.path;
        EXPECT_EQ(answer->body.find("is not a field of this route"), std::string::npos)
            << route.path << answer->body;
        EXPECT_EQ(answer->body.find("/v1/completions"), std::string::npos)
            << route.path << " " << name << answer->body;
        ++fields;
      }
    }
  }
  EXPECT_GT(fields, 200u);
  for (const char* path : {"/completion", "/completions", "/infill"}) {
    const Json* operation = at(document, "paths").find(path)->find("post");
    const Json properties = at(forms_of_body(*operation).front(), "properties");
    for (const char* refused : {"allowed_token_ids", "truncate_prompt_tokens", "prompt_logprobs",
                                "request_id", "bad_words"}) {
      EXPECT_EQ(properties.find(refused), nullptr) << path << refused;
    }
  }
}

TEST(OpenApi, ThePageNeedsNothingElse) {
  ServerFixture f({}, "x");
  const TestResponse document = f.get("/openapi.json");
  EXPECT_EQ(at(document.json(), "openapi").as_string(), "3.1.0");
  const TestResponse page = f.get("/docs");
  EXPECT_EQ(page.status, 200);
  EXPECT_EQ(page.headers.at("content-type"), "text/html; charset=utf-8");
  EXPECT_TRUE(page.headers.at("content-security-policy").starts_with("default-src 'none'"));
  for (const char* outside : {"<script", "src=", "http://", "https://"}) {
    EXPECT_EQ(page.body.find(outside), std::string::npos) << outside;
  }
  for (const Route& route : routes()) {
    if (route.model == ModelClass::kNotServed) continue;
    EXPECT_NE(page.body.find(fmt::format("<code>{}</code>", route.path)), std::string::npos)
        << route.path;
  }
}

}  // namespace
}  // namespace headrace::openapi_test
