// Fields of other servers that would change an answer and that this one does not implement. Silence
// about them would be a wrong answer with status 200; a value that asks for nothing passes.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/request_fields.h"

namespace headrace {

// What asks for a form of answers (answer_form.h), of protocols that do so by other names.
std::span<const RefusedField> refused_form_fields();
// By kind of request: those of both, of chats, of completions.
std::span<const RefusedField> refused_generation_fields();
std::span<const RefusedField> refused_chat_fields();
std::span<const RefusedField> refused_completion_fields();

// kInvalidArgument with the field's name and what to do instead.
Status check_chat_fields(const Json& body);
Status check_completion_fields(const Json& body);
// The same for a protocol of chats that is not OpenAI's: what its chats take, and what they refuse,
// is refused, but for the fields in `own`, which the protocol has itself. Fields of
// generation_fields() are not looked at.
Status check_other_chat_fields(const Json& body, std::span<const std::string_view> own);

}  // namespace headrace
