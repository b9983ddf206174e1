// Requests for embeddings: OpenAI's /v1/embeddings with vLLM's additions, and Ollama's two.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "server/request_fields.h"
#include "text/tokenizer.h"

namespace headrace {

enum class EmbeddingEncoding : uint8_t {
  kFloat,   // an array of numbers
  kBase64,  // little-endian f32, which OpenAI's clients ask for by themselves
};

struct EmbeddingRequest {
  std::string model;
  // One of the two: texts, or token ids as they are.
  std::vector<std::string> texts;
  std::vector<std::vector<TokenId>> ids;
  EmbeddingEncoding encoding = EmbeddingEncoding::kFloat;
  int32_t dimensions = 0;  // 0: all
  // Longer texts lose what is behind so many tokens, special ones included; -1: what the model
  // takes; empty: they are refused.
  std::optional<int32_t> truncate;
  bool add_special = true;  // of texts

  size_t size() const { return texts.empty() ? ids.size() : texts.size(); }
};

std::span<const Field<EmbeddingRequest>> embedding_fields();
// kInvalidArgument with the field's name.
Result<EmbeddingRequest> parse_embedding_request(const Json& body, const FieldContext& context);

// /api/embed and the older /api/embeddings, whose one text is `prompt`. Texts are truncated unless
// the request says otherwise.
enum class OllamaEmbedRoute : uint8_t { kEmbed, kEmbeddings };
Result<EmbeddingRequest> parse_ollama_embed_request(OllamaEmbedRoute route, const Json& body,
                                                    const FieldContext& context);

// What of the model a request is held against.
struct EmbeddingSizes {
  int32_t dimensions = 0;
  int32_t length_max = 0;  // tokens of a text
};

// The ids of all texts, in order, special tokens included. kInvalidArgument: a text is empty or
// too long, or a number is more than the model has; it names the field and the text's place.
Result<std::vector<std::vector<TokenId>>> embedding_ids(EmbeddingRequest request,
                                                        const Tokenizer* tokenizer,
                                                        const EmbeddingSizes& sizes,
                                                        const RequestLimits& limits);

}  // namespace headrace
