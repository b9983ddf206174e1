// Answers of OpenAI's Responses API: "response" objects of output items, and their events.
#pragma once

#include <functional>
#include <memory>

#include "server/answer_format.h"

namespace headrace {

// What a response has besides the answer.
struct ResponseFrame {
  Json request;  // members that say what was asked for
  // Called with the response as it is in the queue, before all else; may be empty.
  std::function<void(const std::string& id, const Json& queued)> announce;
  // Called with the response and its output once it is complete; may be empty.
  std::function<void(const std::string& id, const Json& response, const Json& output)> keep;
  bool keep_failed = false;  // also once its stream has failed
};

std::unique_ptr<AnswerFormat> make_response_format(AnswerHead head, ResponseFrame frame);

}  // namespace headrace
