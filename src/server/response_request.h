// Requests of OpenAI's Responses API, read into chat requests.
#pragma once

#include <optional>
#include <span>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/status.h"
#include "server/chat_turns.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

struct ResponseRequest {
  ChatRequest chat;
  ChatTurns turns;                  // while it is read
  std::vector<Json> earlier_items;  // of the responses that it goes on from, each an array
  Json input_items;                 // of this request: an array; each has an id
  Json echo;                        // what the response says of its request
  bool store = true;
  bool background = false;  // made while its client does not wait
};

// The rows besides those of generation_fields() that the API has, too. A row's name is the JSON
// key.
std::span<const Field<ResponseRequest>> response_fields();

// previous_response_id; empty: there is none. kInvalidArgument for what can be no id.
Result<std::string> read_previous_id(const Json& body, const FieldContext& context);

// kInvalidArgument with the field's name. Any thread, no side effects. `earlier`: the items of the
// responses that previous_response_id stands for, in their order.
Result<ResponseRequest> parse_response_request(const Json& body, const FieldContext& context,
                                               std::vector<Json> earlier);

}  // namespace headrace
