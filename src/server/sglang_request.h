// Requests of SGLang's /generate.
#pragma once

#include <span>
#include <string>

#include "server/generation_request.h"

namespace headrace {

struct SglangRequest {
  CompletionRequest completion;
  bool is_list = false;  // prompts came in a list, and so do the answers
  std::string id;        // rid; empty: the server makes one
};

std::span<const Field<SglangRequest>> sglang_fields();

// kInvalidArgument with the field's name; those of sampling_params as "sampling_params.top_p". Any
// thread.
Result<SglangRequest> parse_sglang_request(const Json& body, const FieldContext& context);

}  // namespace headrace
