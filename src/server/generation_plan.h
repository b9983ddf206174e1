// From a request to what an answer needs: prompts as ids that fit the context, the parser of its
// text, and its format. A protocol reads its body into one of the two kinds of request and says how
// it words the answer.
#pragma once

#include <functional>
#include <memory>
#include <string_view>

#include "server/generation_request.h"
#include "server/generation_session.h"

namespace headrace {

struct AnswerWording {
  std::string_view id_prefix;
  std::function<std::unique_ptr<AnswerFormat>(AnswerHead head)> make_format;
  int32_t max_tokens_otherwise = 0;         // of a request that names none
  std::string_view prompt_name = "prompt";  // the field that errors about the prompt name
  std::string_view request_type = "other";  // as ServerMetrics::on_calls_read()
};

// kInvalidArgument and kNotFound with the field's name, kExhausted over a template's budget. Any
// thread.
Result<GenerationPlan> plan_completion(const ReadyModel& model, CompletionRequest request,
                                       const AnswerWording& wording);
Result<GenerationPlan> plan_chat(const ReadyModel& model, ChatRequest request,
                                 const AnswerWording& wording);

// Of the prompt. A chat of more than twice the context is refused: counting it helps nobody.
Result<int64_t> count_chat_tokens(const ReadyModel& model, ChatRequest request,
                                  std::string_view prompt_name);

// AnswerWording::max_tokens_otherwise of a protocol whose answers may be as long as the context:
// what the operator says (ServedModel::answer_tokens), unless the request asks for all of it.
int32_t length_otherwise(const ReadyModel& model, const GenerationSettings& settings);

// The same where the length that was asked for is a bound: as much of it as the context leaves
// counts as named (key_quota.h).
Result<GenerationPlan> with_named_length(Result<GenerationPlan> plan);

}  // namespace headrace
