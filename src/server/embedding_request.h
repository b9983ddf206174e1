// Requests for what an encoder makes of single texts: OpenAI's /v1/embeddings with vLLM's
// additions, llama.cpp's and Ollama's two each, and vLLM's /pooling and /classify.
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
  bool add_special = true;      // of texts
  std::string field = "input";  // where the texts were, for messages
  // Of /pooling and /classify.
  bool use_activation = true;  // of a classifier: probabilities and not logits
  std::string task;            // "embed" or "classify"; empty: what the model does

  size_t size() const { return texts.empty() ? ids.size() : texts.size(); }
};

std::span<const Field<EmbeddingRequest>> embedding_fields();
// kInvalidArgument with the field's name.
Result<EmbeddingRequest> parse_embedding_request(const Json& body, const FieldContext& context);

// llama.cpp's /embedding and /embeddings, where the text may be called `content`.
Result<EmbeddingRequest> parse_llama_embedding_request(const Json& body,
                                                       const FieldContext& context);

// /api/embed and the older /api/embeddings, whose one text is `prompt`. Texts are truncated unless
// the request says otherwise.
enum class OllamaEmbedRoute : uint8_t { kEmbed, kEmbeddings };
Result<EmbeddingRequest> parse_ollama_embed_request(OllamaEmbedRoute route, const Json& body,
                                                    const FieldContext& context);

// vLLM's. Which task the model does is the handler's to know.
Result<EmbeddingRequest> parse_pooling_request(const Json& body, const FieldContext& context);
Result<EmbeddingRequest> parse_classify_request(const Json& body, const FieldContext& context);
std::span<const Field<EmbeddingRequest>> pooling_fields();  // that it has beside an embedding's

// What of the model a request is held against.
struct EmbeddingSizes {
  int32_t dimensions = 0;
  int32_t length_max = 0;  // tokens of a text
};

// truncate_prompt_tokens is -1 or at least 1.
Status check_truncate(const std::optional<int32_t>& truncate);
// Tokens that a text may have, or is cut to. kInvalidArgument: more than the model takes.
Result<size_t> text_tokens_max(const std::optional<int32_t>& truncate, const EmbeddingSizes& sizes);
// What is truncated is tokenized whole: kInvalidArgument where it has too many bytes for that.
Status check_truncated_bytes(std::string_view field, size_t place, size_t bytes,
                             const RequestLimits& limits);
Status text_too_long(std::string_view field, size_t place, size_t limit);

// The ids of all texts, in order, special tokens included. kInvalidArgument: a text is empty or
// too long, or a number is more than the model has; it names the field and the text's place.
Result<std::vector<std::vector<TokenId>>> embedding_ids(EmbeddingRequest request,
                                                        const Tokenizer* tokenizer,
                                                        const EmbeddingSizes& sizes,
                                                        const RequestLimits& limits);

}  // namespace headrace
