// Requests of text-generation-inference ("TGI"): /generate with `inputs`, /generate_stream, and
// "/".
#pragma once

#include <span>
#include <string>

#include "server/generation_request.h"

namespace headrace {

struct TgiRequest {
  CompletionRequest completion;
  std::string inputs;
  bool details = false;    // tokens and why the answer ended
  bool full_text = false;  // return_full_text: the prompt in front
  bool sampled = false;    // do_sample, or a field that asks for it; else greedy
};

std::span<const Field<TgiRequest>> tgi_fields();
std::span<const Field<TgiRequest>> tgi_parameters();

// kInvalidArgument with the field's name; those of parameters as "parameters.top_p". Any thread.
Result<TgiRequest> parse_tgi_request(const Json& body, const FieldContext& context);

}  // namespace headrace
