// How much a model shall think: the fields of chats by which servers bound or switch its thoughts.
#pragma once

#include <span>
#include <string_view>

#include "base/json.h"
#include "base/status.h"
#include "server/generation_request.h"
#include "server/request_fields.h"

namespace headrace {

// vLLM's thinking_token_budget, llama.cpp's thinking_budget_tokens and reasoning_budget, Qwen's
// thinking_budget; `reasoning` as OpenRouter has it, `thinking` as Anthropic.
std::span<const Field<ChatRequest>> thought_fields();

// For other protocols. A count of tokens under its name; -1: as many as there come.
// kInvalidArgument also where this model's thoughts cannot be bounded here.
Status read_thought_tokens(std::string_view name, const Json& value, const FieldContext& context,
                           ChatRequest& request);
// One of reasoning_effort's words, under the field's own name.
Status read_effort(std::string_view name, const Json& value, ChatRequest& request);
// Sets what templates call the switch of thoughts, unless the request says it in their words.
void switch_thoughts(bool on, ChatRequest& request);

}  // namespace headrace
