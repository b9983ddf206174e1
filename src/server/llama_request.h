// Requests of llama.cpp's own API: /completion and /infill. Sampling is read as the OpenAI API's
// fields of the same names are.
#pragma once

#include <span>
#include <string>
#include <utility>
#include <variant>
#include <vector>

#include "server/generation_request.h"
#include "text/fill_in_tokens.h"
#include "text/tokenizer.h"

namespace headrace {

// A prompt is texts and token ids in any order.
using PromptPiece = std::variant<std::string, std::vector<TokenId>>;
using MixedPrompt = std::vector<PromptPiece>;

struct FileText {
  std::string name, text;
};

struct LlamaRequest {
  GenerationSettings settings;
  std::vector<MixedPrompt> prompts;
  // llama.cpp's logit_bias of texts: of each of their tokens.
  std::vector<std::pair<std::string, float>> biased_texts;
  bool parse_special = false;  // texts that spell control tokens become them
  bool return_tokens = false;
  // Of /infill.
  std::string before, behind;            // input_prefix, input_suffix
  std::vector<TokenId> behind_ids = {};  // what stands behind as ids; none: as `behind` is encoded
  std::vector<FileText> others;          // input_extra: what else is open
};

std::span<const Field<LlamaRequest>> llama_fields();
std::span<const Field<LlamaRequest>> infill_fields();

// What holds for requests that do not say it: the model's own suggestions, and where there are
// none, llama.cpp's.
SamplingDefaults llama_sampling(const SamplingDefaults& of_model);

// kInvalidArgument with the field's name. Any thread.
Result<LlamaRequest> parse_llama_completion(const Json& body, const FieldContext& context);
Result<LlamaRequest> parse_llama_infill(const Json& body, const FieldContext& context);

// Adds the biases of texts to those of ids. kInvalidArgument: there are too many, or no tokenizer.
Status put_biased_texts(const Tokenizer* tokenizer, const RequestLimits& limits,
                        LlamaRequest& request);

// Ids of a prompt: its first text begins as texts do (with BOS where the vocabulary says so).
// REQUIRES: a tokenizer, or ids alone
Result<std::vector<TokenId>> encode_mixed(const Tokenizer* tokenizer, const MixedPrompt& prompt,
                                          EncodeOptions options);
// Of a request to fill in: the other files, then what stands before and behind the place.
// `prompt`, where there is one, goes on with what stands before. kInvalidArgument for other files
// where the model has no mark for them.
Result<std::vector<TokenId>> encode_infill(const Tokenizer& tokenizer, const FillInTokens& marks,
                                           const LlamaRequest& request, size_t tokens_max);

}  // namespace headrace
