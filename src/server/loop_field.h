// repetition_detection, vLLM's: an answer that goes round in circles ends (base/repetition.h).
#pragma once

#include "base/status.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

// The sizes of what is repeated, in tokens, and how often. Errors name the member.
Status read_loop_field(const Json& value, const FieldContext& context,
                       GenerationSettings& settings);

}  // namespace headrace
