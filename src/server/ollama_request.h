// Requests of Ollama's API, /api/chat and /api/generate, in the words of its documentation.
//
// `options` are checked as the same fields of the OpenAI API are. What would change an answer and
// is not implemented is refused by name; what only says how to load a model, or where, is accepted
// and ignored: num_keep, num_batch, num_gpu, main_gpu, num_thread, use_mmap, use_mlock,
// low_vram, numa and their kin, penalize_newline, and `template` (the server's own is the one).
#pragma once

#include <optional>
#include <span>
#include <string>

#include "server/generation_request.h"

namespace headrace {

enum class OllamaRoute : uint8_t { kChat, kGenerate };

struct OllamaRequest {
  ChatRequest chat;  // of kGenerate: no messages yet
  std::string prompt, system;
  std::string suffix;       // behind what is to be filled in; empty: the prompt goes on
  bool raw = false;         // the prompt is the model's input, control tokens and all
  std::string think_level;  // "low", "medium", "high"
  bool only_loads = false;  // there is nothing to answer: a client wants the model to be there
};

// The rows by which all are read, and those of each route.
std::span<const Field<OllamaRequest>> ollama_fields();
std::span<const Field<OllamaRequest>> ollama_fields(OllamaRoute route);

// kInvalidArgument with the field's name; those of options as "options.temperature". Any thread.
Result<OllamaRequest> parse_ollama_request(OllamaRoute route, const Json& body,
                                           const FieldContext& context);

// Seconds of a keep_alive: a number, or a Go duration ("5m"); below 0: infinite. Empty: it is none.
std::optional<double> keep_alive_seconds(const Json& value);

}  // namespace headrace
