// Requests of /tokenize, /detokenize and /apply-template, in the forms of vLLM and llama.cpp.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/ids.h"
#include "base/json.h"
#include "base/status.h"
#include "server/request_fields.h"

namespace headrace {

struct TokenizeRequest {
  std::string model;
  // Exactly one is set: the vLLM text form, the chat form, the llama.cpp form.
  std::optional<std::string> prompt;
  std::optional<Json> messages;
  std::optional<std::string> content;
  std::optional<bool> add_special;  // add_special_tokens or add_special
  std::optional<bool> parse_special;
  bool add_generation_prompt = true;
  bool continue_final_message = false;
  Json template_variables;  // tools, documents, chat_template_kwargs: an object or null
  bool return_token_strs = false;
  bool with_pieces = false;
};

struct DetokenizeRequest {
  std::string model;
  std::vector<TokenId> tokens;
  bool has_tokens = false;
};

std::span<const Field<TokenizeRequest>> tokenize_fields();
std::span<const Field<DetokenizeRequest>> detokenize_fields();

Result<TokenizeRequest> parse_tokenize_request(const Json& body, const FieldContext& context);
Result<DetokenizeRequest> parse_detokenize_request(const Json& body, const FieldContext& context);

}  // namespace headrace
