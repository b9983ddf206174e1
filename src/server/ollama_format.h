// How Ollama's API words its answers: JSON objects, one a line in a stream; the last has "done",
// counts, and durations in nanoseconds.
#pragma once

#include <memory>
#include <string>

#include "server/answer_format.h"
#include "server/ollama_request.h"

namespace headrace {

std::unique_ptr<AnswerFormat> make_ollama_format(OllamaRoute route, AnswerHead head);

// What all lines have: the model, the time, `content` where the route has it, whether it is the
// last.
Json ollama_line(OllamaRoute route, const std::string& model, std::string content, bool done);

// "2026-01-31T12:34:56.000001Z"
std::string rfc3339(int64_t unix_s, int64_t microseconds = 0);

}  // namespace headrace
