// How the tokens of one request are chosen and reported. Plain data; the API checks the ranges.
#pragma once

#include <cstdint>
#include <memory>
#include <optional>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/repetition.h"

namespace headrace {

// DRY ("don't repeat yourself"; p-e-w, text-generation-webui 5677): a token that would make the
// text repeat an earlier sequence of at least `allowed_length` tokens loses multiplier *
// base^(length - allowed_length) of its logit.
struct DryPenalty {
  float multiplier = 0.0f;     // 0 = off
  float base = 1.75f;          // >= 1
  int32_t allowed_length = 2;  // >= 1
  int32_t last_tokens = -1;    // of prompt and output that are looked at; -1 = all, 0 = off
  // Ascending ids that no repeated sequence goes across; null: none.
  std::shared_ptr<const std::vector<TokenId>> breakers;

  bool on() const { return multiplier != 0.0f && last_tokens != 0; }
};

struct SamplingParams {
  float temperature = 1.0f;         // 0 = greedy
  float top_p = 1.0f;               // (0, 1]; 1 = off
  int32_t top_k = 0;                // 0 = off
  float min_p = 0.0f;               // [0, 1]; 0 = off
  float repetition_penalty = 1.0f;  // > 0; over prompt and output
  float presence_penalty = 0.0f;    // [-2, 2]; over output
  float frequency_penalty = 0.0f;   // [-2, 2]; over output
  // llama.cpp's: these three are over so many tokens that came last, of prompt and output alike.
  // -1 = as said above. REQUIRES: not 0
  int32_t penalty_window = -1;
  float top_n_sigma = 0.0f;      // keep logits >= largest - n * deviation (Tang 2024); 0 = off
  float typical_p = 1.0f;        // (0, 1]; locally typical sampling (Meister 2022); 1 = off
  float xtc_probability = 0.0f;  // [0, 1]; of excluding top choices (p-e-w 2024); 0 = off
  float xtc_threshold = 0.1f;    // but the least of those that are as probable as this
  DryPenalty dry;
  std::vector<std::pair<TokenId, float>> logit_bias;
  std::optional<uint64_t> seed;  // none: drawn by the engine when the request is added

  int32_t n = 1;            // choices; they share the prompt's blocks
  int32_t max_tokens = 16;  // per choice; 0 = only score the prompt
  int32_t min_tokens = 0;   // no end id before so many
  bool ignore_eos = false;  // end ids of the model do not stop
  std::vector<TokenId> stop_token_ids;
  LoopLimits loop;  // behind min_tokens: an answer that goes round in such a loop ends

  // Log-probabilities of the plain softmax (before temperature, penalties and filters).
  int32_t logprobs = -1;         // -1 = none; k = chosen token and the k best, per output token
  int32_t prompt_logprobs = -1;  // the same for each prompt token (echo)
};
// Whether tokens lose by having come, DRY apart.
inline bool penalises_tokens(const SamplingParams& sampling) {
  return sampling.repetition_penalty != 1.0f || sampling.presence_penalty != 0.0f ||
         sampling.frequency_penalty != 0.0f;
}
inline bool has_penalty_window(const SamplingParams& sampling) {
  return sampling.penalty_window > 0 && penalises_tokens(sampling);
}
// Whether penalties need what a sequence has generated so far.
inline bool counts_outputs(const SamplingParams& sampling) {
  return penalises_tokens(sampling) || sampling.dry.on();
}
// The first of its samplers that not every device has; nullptr: it asks for none.
inline const char* rare_sampler(const SamplingParams& sampling) {
  if (sampling.dry.on()) return "dry_multiplier";
  if (sampling.top_n_sigma > 0) return "top_n_sigma";
  if (sampling.typical_p < 1) return "typical_p";
  return sampling.xtc_probability > 0 ? "xtc_probability" : nullptr;
}

}  // namespace headrace
