// Answers as models of each dialect write them, with what they mean: for tests and seeds.
#pragma once

#include <span>
#include <string_view>

namespace headrace {

struct OutputSample {
  std::string_view dialect;  // of --tool-call-parser
  std::string_view text;
  // Content, thoughts in (...), calls as {name arguments}; joined.
  std::string_view meaning;
  bool in_reasoning = false;             // the prompt opened the thought
  std::string_view reasoning = "qwen3";  // of --reasoning-parser
};

std::span<const OutputSample> output_samples();
std::string_view output_sample_tools();  // JSON, as requests have it

}  // namespace headrace
