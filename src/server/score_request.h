// Requests that compare texts: vLLM's /score, and /rerank in the words of Jina, Cohere and vLLM, or
// in those of text-embeddings-inference.
#pragma once

#include <cstdint>
#include <optional>
#include <span>
#include <string>
#include <string_view>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "engine/embedding_engine.h"
#include "server/embedding_request.h"
#include "server/request_fields.h"
#include "text/chat_prompt.h"
#include "text/tokenizer.h"

namespace headrace {

struct ScoreRequest {
  std::string model;
  // Each of `second` is compared with the one of `first`, or with its own: 1:1, 1:N or N:N.
  std::vector<std::string> first, second;
  std::string_view first_field, second_field;  // where they were, for messages
  std::optional<int32_t> truncate;  // of a pair together, or of each text: as EmbeddingRequest's
  int32_t second_tokens_max = 0;    // the second text alone is cut to this first; 0: it is not
  bool use_activation = true;       // of a cross-encoder: what its files say, and not logits
  // Of reranks.
  int32_t top_n = 0;  // 0: all
  bool return_documents = true;

  const std::string& first_of(size_t pair) const { return first[first.size() == 1 ? 0 : pair]; }
};

// kInvalidArgument with the field's name.
Result<ScoreRequest> parse_score_request(const Json& body, const FieldContext& context);
Result<ScoreRequest> parse_rerank_request(const Json& body, const FieldContext& context);
Result<ScoreRequest> parse_tei_rerank_request(const Json& body, const FieldContext& context);
std::span<const Field<ScoreRequest>> score_fields();
std::span<const Field<ScoreRequest>> rerank_fields();
std::span<const Field<ScoreRequest>> tei_rerank_fields();

// What a cross-encoder reads: one text a pair. kInvalidArgument: a pair is too long, the tokenizer
// has no form of pairs, or there is none.
Result<std::vector<EmbeddingText>> pair_texts(const ScoreRequest& request,
                                              const Tokenizer* tokenizer,
                                              const EmbeddingSizes& sizes,
                                              const RequestLimits& limits);
// What a decoder's classifier reads: each pair as one prompt, which `prompts` makes of a message of
// the role query and one of the role document; null: the two texts one behind the other, whose
// special tokens are read as such. A pair that is cut loses the end of its second text.
Result<std::vector<EmbeddingText>> prompt_texts(const ScoreRequest& request,
                                                const ChatPromptEncoder* prompts,
                                                const Tokenizer* tokenizer,
                                                const EmbeddingSizes& sizes,
                                                const RequestLimits& limits);
// What an embedder reads: all first texts, then all second ones.
Result<std::vector<EmbeddingText>> compared_texts(const ScoreRequest& request,
                                                  const Tokenizer* tokenizer,
                                                  const EmbeddingSizes& sizes,
                                                  const RequestLimits& limits);

}  // namespace headrace
