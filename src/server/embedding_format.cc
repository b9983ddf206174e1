#include "server/embedding_format.h"

#include <bit>
#include <cstring>
#include <iterator>

#include <fmt/format.h>

#include "base/json.h"
#include "server/random_id.h"
#include "server/server_state.h"
#include "text/base64.h"

namespace headrace {
namespace {

static_assert(std::endian::native == std::endian::little, "base64 is of floats as they lie");

size_t vector_count(const EmbeddingRows& rows) {
  return rows.width == 0 ? 0 : rows.values.size() / rows.width;
}

std::span<const float> vector_at(const EmbeddingRows& rows, size_t i) {
  return rows.values.subspan(i * rows.width, rows.dimensions);
}

// The shortest decimals that are read back as the same floats.
void append_numbers(std::span<const float> values, std::string& out) {
  out.push_back('[');
  for (size_t i = 0; i < values.size(); ++i) {
    if (i > 0) out.push_back(',');
    fmt::format_to(std::back_inserter(out), "{}", values[i]);
  }
  out.push_back(']');
}

// What a vector is called.
struct VectorNames {
  std::string_view object, member;
};

// From "data" to the end of the answer.
void append_vectors(const VectorNames& names, const EmbeddingRows& rows,
                    const EmbeddingAnswer& answer, std::string& out) {
  out += R"("data":[)";
  for (size_t i = 0; i < vector_count(rows); ++i) {
    if (i > 0) out.push_back(',');
    fmt::format_to(std::back_inserter(out), R"({{"object":"{}","index":{},"{}":)", names.object, i,
                   names.member);
    if (answer.encoding == EmbeddingEncoding::kBase64) {
      out.push_back('"');
      append_base64(vector_at(rows, i), out);
      out.push_back('"');
    } else {
      append_numbers(vector_at(rows, i), out);
    }
    out.push_back('}');
  }
  fmt::format_to(std::back_inserter(out),
                 R"(],"model":{},"usage":{{"prompt_tokens":{},"total_tokens":{}}}}})",
                 write_json(Json(answer.model)), answer.prompt_tokens, answer.prompt_tokens);
}

}  // namespace

void append_base64(std::span<const float> values, std::string& out) {
  out += encode_base64(
      std::string_view(reinterpret_cast<const char*>(values.data()), values.size_bytes()));
}

std::string openai_embeddings(const EmbeddingRows& rows, const EmbeddingAnswer& answer) {
  std::string out = R"({"object":"list",)";
  append_vectors({.object = "embedding", .member = "embedding"}, rows, answer, out);
  return out;
}

std::string pooling_answer(const EmbeddingRows& rows, const EmbeddingAnswer& answer) {
  std::string out = fmt::format(R"({{"id":"pool-{}","object":"list","created":{},)",
                                random_hex_id(), unix_seconds());
  append_vectors({.object = "pooling", .member = "data"}, rows, answer, out);
  return out;
}

std::string llama_embeddings(const EmbeddingRows& rows, const EmbeddingAnswer&) {
  std::string out = "[";
  for (size_t i = 0; i < vector_count(rows); ++i) {
    if (i > 0) out.push_back(',');
    fmt::format_to(std::back_inserter(out), R"({{"index":{},"embedding":[)", i);
    append_numbers(vector_at(rows, i), out);
    out += "]}";
  }
  return out + "]";
}

std::string ollama_embeddings(OllamaEmbedRoute route, const EmbeddingRows& rows,
                              const EmbeddingAnswer& answer) {
  std::string out;
  if (route == OllamaEmbedRoute::kEmbeddings) {
    out = R"({"embedding":)";
    append_numbers(vector_count(rows) == 0 ? rows.values : vector_at(rows, 0), out);
    return out + "}";
  }
  out = fmt::format(R"({{"model":{},"embeddings":[)", write_json(Json(answer.model)));
  for (size_t i = 0; i < vector_count(rows); ++i) {
    if (i > 0) out.push_back(',');
    append_numbers(vector_at(rows, i), out);
  }
  fmt::format_to(std::back_inserter(out),
                 R"(],"total_duration":{:.0f},"load_duration":{:.0f},"prompt_eval_count":{}}})",
                 (answer.load_seconds + answer.seconds) * 1e9, answer.load_seconds * 1e9,
                 answer.prompt_tokens);
  return out;
}

}  // namespace headrace
