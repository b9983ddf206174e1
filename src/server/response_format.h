// Answers of OpenAI's Responses API: "response" objects of output items, and their events.
#pragma once

#include <functional>
#include <memory>

#include "server/answer_format.h"

namespace headrace {

// What a response has besides the answer.
struct ResponseFrame {
  Json request;  // members that say what was asked for
  // Called with the response and its output once it is complete; may be empty.
  std::function<void(const std::string& id, const Json& response, const Json& output)> keep;
};

std::unique_ptr<AnswerFormat> make_response_format(AnswerHead head, ResponseFrame frame);

}  // namespace headrace
