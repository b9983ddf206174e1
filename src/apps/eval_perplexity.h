// Perplexity of a text by llama-perplexity's rule: windows of c tokens without overlap, the text
// tokenised once, the first id of each window replaced by BOS where the model adds one, only the
// targets c/2 + 1 .. c - 1 of each window scored; exp of the mean of -ln p.
#pragma once

#include <cstdint>
#include <functional>
#include <string>
#include <string_view>

#include "stack/model_stack.h"

namespace headrace {

struct Perplexity {
  double perplexity = 0;
  double mean_nll = 0;    // its logarithm
  double stderr_nll = 0;  // of the mean, targets taken as independent
  int64_t text_tokens = 0;
  int64_t windows = 0;
  int64_t scored = 0;  // targets
  double seconds = 0;
};

// A file's text; "-": of the standard input. Errors name the file: a folder, none, an empty one.
Result<std::string> read_evaluated_text(const std::string& path);

// Called with windows done and in all, and the perplexity so far.
using PerplexityProgress = std::function<void(int64_t done, int64_t windows, double perplexity)>;

// As many windows as the engine has slots are in flight. kInvalidArgument where the text is shorter
// than one window, or the window longer than the engine's context.
Result<Perplexity> measure_perplexity(ModelStack& stack, std::string_view text, int32_t window,
                                      const PerplexityProgress& progress);

}  // namespace headrace
