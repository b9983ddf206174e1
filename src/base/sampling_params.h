// How the tokens of one request are chosen and reported. Plain data; the API checks the ranges.
#pragma once

#include <cstdint>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"

namespace headrace {

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy
  float top_p = 1.0f;               // (0, 1]; 1 = off
  int32_t top_k = 0;                // 0 = off
  float min_p = 0.0f;               // [0, 1]; 0 = off
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over output
  float frequency_penalty = 0.0f;   // [-2, 2]; over output
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<uint64_t> seed;  // none: drawn by the engine when the request is added

  int32_t n = 1;            // choices; they share the prompt's blocks
  int32_t max_tokens = 16;  // per choice; 0 = only score the prompt
  int32_t min_tokens = 0;   // no end id before so many
  bool ignore_eos = false;  // end ids of the model do not stop
  std::vector<TokenId> stop_token_ids;

  // Log-probabilities of the plain softmax (before temperature, penalties and filters).
  int32_t logprobs = -1;         // -1 = none; k = chosen token and the k best, per output token
  int32_t prompt_logprobs = -1;  // the same for each prompt token (echo)
};
// Whether penalties need what a sequence has generated so far.
inline bool counts_outputs(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
         sampling.frequency_penalty != 0.0f;
}

}  // namespace headrace
