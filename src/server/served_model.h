// A model that answers: what the server is given when loading is done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/sampling_defaults.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

// The pointers must outlive the server.
struct ServedModel {
  Engine* engine = nullptr;
  const Tokenizer* tokenizer = nullptr;         // nullptr: prompts must be token ids
  const ChatTemplate* chat_template = nullptr;  // nullptr: no chat
  std::vector<std::string> names;               // accepted in `model`; the first is returned
  std::vector<std::string> other_names;         // accepted likewise, and listed nowhere
  int32_t max_model_len = 0;                    // prompt and answer together, tokens
  // What the model's calls of tools and thoughts look like: names of text/output/dialect.h.
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  SamplingDefaults sampling;  // of requests that do not say it themselves
  int64_t created_unix_s = 0;
};

}  // namespace headrace
