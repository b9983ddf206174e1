// Messages of a conversation -> prompt ids, through the model's chat template.
#pragma once

#include <string_view>
#include <vector>

#include "base/json.h"
#include "stack/model_stack.h"

namespace headrace {

// {"role": role, "content": content}
Json chat_message(std::string_view role, std::string_view content);

// `messages`: an array of messages; the model is to answer next. Control tokens spelled in them are
// text. kUnsupported when the model has no template or no vocabulary.
Result<std::vector<TokenId>> encode_chat(const ModelStack& stack, const Json& messages);

// Text as it is, with BOS where the model adds one; control tokens spelled in it are text.
Result<std::vector<TokenId>> encode_text(const ModelStack& stack, std::string_view text);

}  // namespace headrace
