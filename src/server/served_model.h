// A model that answers: what the server is given when loading is done.
#pragma once

#include <cstdint>
#include <string>
#include <vector>

#include "base/json.h"
#include "base/sampling_defaults.h"
#include "engine/embedding_engine.h"
#include "engine/engine.h"
#include "text/chat_template.h"
#include "text/tokenizer.h"

namespace headrace {

class AdapterBank;

// What a person is told of the model. Empty or 0: not known.
struct ModelFacts {
  std::string path;          // as it was given
  std::string architecture;  // as GGUF spells it
  std::string weight_types;  // "Q4_1 + Q8_0"
  int64_t parameter_count = 0;
  int64_t file_bytes = 0;
  int64_t memory_bytes = 0;    // of weights, keys and values
  int64_t gpu_bytes = 0;       // of them
  int32_t context_length = 0;  // that it was trained on, tokens
  int32_t hidden = 0, layers = 0;

  bool is_gguf() const { return path.ends_with(".gguf"); }
};

// The pointers must outlive the server.
struct ServedModel {
  // One of the two: a model generates text, or it gives vectors or scores.
  Engine* engine = nullptr;
  EmbeddingEngine* embedder = nullptr;
  const Tokenizer* tokenizer = nullptr;  // nullptr: prompts must be token ids
  // Of chats, or where joins_pairs of a query and a document (those are the roles); nullptr: none.
  const ChatTemplate* chat_template = nullptr;
  AdapterBank* adapters = nullptr;  // that requests name as their model; nullptr: none
  bool adapters_change = false;     // they are loaded and unloaded by requests
  std::string adapter_of_all;       // of the bank: of requests that name the model; empty: none
  bool joins_pairs = false;         // a classifier reads two texts as one prompt: a decoder's
  std::vector<std::string> names;   // accepted in `model`; the first is returned
  std::vector<std::string> other_names;  // accepted likewise, and listed nowhere
  int32_t max_model_len = 0;             // prompt and answer together, tokens
  // What the model's calls of tools and thoughts look like: names of text/output/dialect.h.
  std::string tool_call_parser = "auto", reasoning_parser = "auto";
  bool ends_forms = true;      // answers with a form are brought to its end within max_tokens
  int32_t answer_tokens = -1;  // of requests that name no length; below 0: what the context holds
  // Variables of the template for chats that do not set them.
  Json template_defaults = Json::object();
  SamplingDefaults sampling;  // of requests that do not say it themselves
  int64_t created_unix_s = 0;
  ModelFacts facts;
};

}  // namespace headrace
