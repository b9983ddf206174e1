// Requests of Anthropic's Messages API, read into chat requests.
#pragma once

#include <optional>
#include <span>

#include "base/json.h"
#include "base/status.h"
#include "server/chat_turns.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

struct MessagesRequest {
  ChatRequest chat;              // its reasoning_effort is output_config's
  ChatTurns turns;               // while it is read
  std::optional<bool> thinking;  // none: as the template has it
};

// The rows besides those of generation_fields() that the API has, too. A row's name is the JSON
// key.
std::span<const Field<MessagesRequest>> messages_fields();

// kInvalidArgument with the field's name. Any thread, no side effects. Of an answer and of
// /v1/messages/count_tokens, where nothing is said of the answer.
Result<MessagesRequest> parse_messages_request(const Json& body, const FieldContext& context);
Result<MessagesRequest> parse_count_tokens_request(const Json& body, const FieldContext& context);

}  // namespace headrace
