// Vectors by the routes of llama.cpp and Ollama, over HTTP.
#include <gtest/gtest.h>

#include <fmt/format.h>

#include "server/encoder_fixture.h"

namespace headrace::other_embeddings_test {
namespace {

// llama.cpp's own routes: the text under either name, and a list in each answer.
TEST(ServerEmbeddings, LlamaCppsRoutes) {
  EncoderServer f;
  const Json vector =
      at(at(f.embed(R"({"input":"ab"})").json(), "data").as_array().at(0), "embedding");
  for (const char* path : {"/embedding", "/embeddings"}) {
    for (const char* body : {R"({"content":"ab"})", R"({"input":"ab"})", R"({"content":["ab"]})"}) {
      const TestResponse response = f.post(path, body);
      ASSERT_EQ(response.status, 200) << response.body;
      const Json answer = response.json();
      ASSERT_EQ(answer.as_array().size(), 1u);
      EXPECT_EQ(at(answer.as_array()[0], "index"), Json(0));
      EXPECT_EQ(at(answer.as_array()[0], "embedding"), Json(Json::Array{vector}));
    }
    EXPECT_EQ(f.post(path, R"({"content":["a","b"]})").json().as_array().size(), 2u);
    EXPECT_EQ(f.post(path, R"({})").error_param(), "content");
    EXPECT_EQ(f.post(path, R"({"content":"a","input":"b"})").error_param(), "content");
    EXPECT_EQ(f.post(path, R"({"content":"a","encoding_format":"base64"})").error_param(),
              "encoding_format");
    EXPECT_EQ(f.post(path, R"({"content":"a","embd_normalize":-1})").error_param(),
              "embd_normalize");
    EXPECT_EQ(f.post(path, R"({"content":"a","embd_normalize":2})").status, 200);
  }
  EXPECT_EQ(f.embed(R"({"input":"a","embd_normalize":-1})").error_param(), "embd_normalize");
}

TEST(ServerEmbeddings, OllamaGivesNoVectorsOfNoTexts) {
  EncoderServer f;
  for (const char* input : {"[]", "\"\""}) {
    const TestResponse response =
        f.post("/api/embed", fmt::format(R"({{"model":"tiny","input":{}}})", input));
    ASSERT_EQ(response.status, 200) << response.body;
    EXPECT_TRUE(at(response.json(), "embeddings").as_array().empty());
    EXPECT_EQ(at(response.json(), "model"), Json("tiny"));
  }
  const TestResponse one = f.post("/api/embeddings", R"({"model":"tiny","prompt":""})");
  ASSERT_EQ(one.status, 200) << one.body;
  EXPECT_TRUE(at(one.json(), "embedding").as_array().empty());
  EXPECT_EQ(f.post("/api/embed", R"({"model":"other","input":[]})").status, 404);
  EXPECT_EQ(f.post("/api/embed", R"({"model":"tiny"})").status, 400);
}

}  // namespace
}  // namespace headrace::other_embeddings_test
