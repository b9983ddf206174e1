// Answers of Anthropic's Messages API: "message" objects of content blocks, and their events.
#pragma once

#include <memory>

#include "server/answer_format.h"

namespace headrace {

// What tells the ends of an answer by length apart.
struct MessageBounds {
  int64_t max_tokens = 0;  // as asked for
  int64_t context = 0;     // prompt and answer together
};

std::unique_ptr<AnswerFormat> make_messages_format(AnswerHead head, MessageBounds bounds);

}  // namespace headrace
