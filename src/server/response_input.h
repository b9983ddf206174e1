// The items that a response is made of: messages, calls of functions, what they gave, thoughts.
#pragma once

#include <string>

#include "base/json.h"
#include "base/status.h"
#include "server/chat_turns.h"

namespace headrace {

// `input`, a text or an array of items, as an array of items that each have an id. Nothing else of
// them is looked at.
Result<Json> response_items(const Json& input, size_t items_max);

// Adds items to a conversation. kInvalidArgument of field `input`, naming the item.
// `arguments_left`: what all arguments of calls may hold together.
Status add_response_items(const Json& items, JsonLimits& arguments_left, ChatTurns& turns);

}  // namespace headrace
