// How the template engine's own files report trouble. A recursive-descent parser and a tree walker
// have an error exit in every line, so inside the engine it is an exception; compile() and render()
// of chat_template.h turn it into a Status, and it never crosses them.
#pragma once

#include <string>
#include <utility>

#include "base/status.h"

namespace headrace {

struct TemplateError {
  StatusCode code;
  int line;  // of the template, from 1
  std::string message;
};

[[noreturn]] inline void template_error(int line, std::string message,
                                        StatusCode code = StatusCode::kInvalidArgument) {
  throw TemplateError{code, line, std::move(message)};
}

}  // namespace headrace
