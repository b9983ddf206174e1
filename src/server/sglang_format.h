// How SGLang's /generate words its answers. The events of a stream repeat all that was said before.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_format.h"

namespace headrace {

struct SglangEcho {
  std::string id;  // empty: the answer's own
  bool is_list = false;
};

std::unique_ptr<AnswerFormat> make_sglang_format(SglangEcho echo, AnswerHead head);

}  // namespace headrace
