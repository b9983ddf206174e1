// Log-probabilities of given ids (teacher-forced) and of greedy continuations, as JSON lines.
//   in:  {"id": any, "prompt_ids": [1, 2, 3]}
//   out: {"id": any, "prompt_logprobs": [null, entry, entry],
//         "tokens": [...], "logprobs": [entry, ...]}   the last two with max_tokens > 0
//   entry: {"token": id, "logprob": ln p, "top": [[id, ln p], ...]}   best first
#pragma once

#include <cstdint>
#include <functional>
#include <string_view>

#include "stack/model_stack.h"

namespace headrace {

struct ScoreOptions {
  int32_t top = 5;
  int32_t max_tokens = 0;
};

// `print` gets the lines in the order of the input. As many requests as the engine has slots are in
// flight. kInvalidArgument names the line that is wrong.
Status score_lines(ModelStack& stack, std::string_view lines, const ScoreOptions& options,
                   const std::function<void(std::string_view line)>& print);

}  // namespace headrace
