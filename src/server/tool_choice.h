// Which calls of tools a request wants: tool_choice, and functions whose arguments must be of their
// form.
#pragma once

#include <cstdint>
#include <string>

#include "base/json.h"
#include "base/status.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

struct ToolChoice {
  enum class Kind : uint8_t { kSilent, kAuto, kNone, kRequired, kNamed };
  Kind kind = Kind::kSilent;
  std::string name;  // kNamed
};

// OpenAI's: "auto", "none", "required", {"type": "function", "function": {"name": ...}} and, of the
// Responses API, {"type": "function", "name": ...}. kInvalidArgument for anything else.
Result<ToolChoice> read_openai_tool_choice(const Json& body);

// Of a request whose tools are read: how calls are read out of the answer, and which there must be.
// Where that cannot be, an agent would wait in vain: kInvalidArgument.
Status choose_calls(const ToolChoice& choice, const FieldContext& context, ChatRequest& request);

}  // namespace headrace
