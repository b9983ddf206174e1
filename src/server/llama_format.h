// How llama.cpp's /completion and /infill word their answers.
#pragma once

#include <memory>
#include <string>
#include <vector>

#include "server/answer_format.h"

namespace headrace {

// What an answer repeats of its request.
struct LlamaEcho {
  Json settings;                     // "generation_settings"
  std::vector<std::string> prompts;  // as text
  bool return_tokens = false;
};

std::unique_ptr<AnswerFormat> make_llama_format(LlamaEcho echo, AnswerHead head);

// What took how long, in milliseconds: "timings".
Json timings_json(const Usage& usage);

}  // namespace headrace
