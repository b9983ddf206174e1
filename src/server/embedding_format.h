// Answers with embeddings, written straight to text: a vector's numbers are never JSON values.
#pragma once

#include <cstdint>
#include <span>
#include <string>
#include <string_view>

#include "server/embedding_request.h"

namespace headrace {

// [vector][dimension], one vector `width` floats behind the other, of which the first `dimensions`
// are told.
struct EmbeddingRows {
  std::span<const float> values;
  size_t width = 0;
  size_t dimensions = 0;
};

struct EmbeddingAnswer {
  std::string model;  // as it is shown
  EmbeddingEncoding encoding = EmbeddingEncoding::kFloat;
  int64_t prompt_tokens = 0;
  double load_seconds = 0;  // that the request has waited for its model
  double seconds = 0;       // since then
};

std::string openai_embeddings(const EmbeddingRows& rows, const EmbeddingAnswer& answer);
std::string pooling_answer(const EmbeddingRows& rows, const EmbeddingAnswer& answer);  // vLLM's
// llama.cpp's: each text has a list of vectors, of which here is one.
std::string llama_embeddings(const EmbeddingRows& rows, const EmbeddingAnswer& answer);
std::string ollama_embeddings(OllamaEmbedRoute route, const EmbeddingRows& rows,
                              const EmbeddingAnswer& answer);

// RFC 4648 base64 of the floats' bytes, little-endian.
void append_base64(std::span<const float> values, std::string& out);

}  // namespace headrace
