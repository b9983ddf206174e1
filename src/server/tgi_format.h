// How text-generation-inference words its answers: one object, and an event a token in a stream,
// whose last has the text as a whole.
#pragma once

#include <memory>
#include <optional>
#include <string>

#include "server/answer_format.h"

namespace headrace {

struct TgiEcho {
  std::string prompt;  // in front of the text where it is wanted, else empty
  std::optional<uint64_t> seed;
  bool details = false;
  bool as_list = false;  // of the route "/"
};

std::unique_ptr<AnswerFormat> make_tgi_format(TgiEcho echo, AnswerHead head);

}  // namespace headrace
