// What holds for requests that do not say how their tokens are chosen: the suggestions of a model's
// makers (generation_config.json, general.sampling.* of a GGUF file), an operator's, or a
// command's.
#pragma once

#include <cstdint>
#include <optional>

#include "base/sampling_params.h"

namespace headrace {

// Empty members leave what there is. Ranges are those of SamplingParams.
struct SamplingDefaults {
  std::optional<float> temperature;
  std::optional<float> top_p;
  std::optional<int32_t> top_k;
  std::optional<float> min_p;
  std::optional<float> repetition_penalty;
  std::optional<uint64_t> seed;  // an operator's: all such requests have the same
  std::optional<int32_t>
      max_new_tokens;  // a bound of every answer, also of those that ask for more

  // Stores all but max_new_tokens.
  void apply_to(SamplingParams& sampling) const {
    sampling.temperature = temperature.value_or(sampling.temperature);
    sampling.top_p = top_p.value_or(sampling.top_p);
    sampling.top_k = top_k.value_or(sampling.top_k);
    sampling.min_p = min_p.value_or(sampling.min_p);
    sampling.repetition_penalty = repetition_penalty.value_or(sampling.repetition_penalty);
    if (seed) sampling.seed = seed;
  }

  // This where it says something, else `below`.
  SamplingDefaults over(const SamplingDefaults& below) const {
    return {
        .temperature = temperature ? temperature : below.temperature,
        .top_p = top_p ? top_p : below.top_p,
        .top_k = top_k ? top_k : below.top_k,
        .min_p = min_p ? min_p : below.min_p,
        .repetition_penalty = repetition_penalty ? repetition_penalty : below.repetition_penalty,
        .seed = seed ? seed : below.seed,
        .max_new_tokens = max_new_tokens ? max_new_tokens : below.max_new_tokens};
  }

  friend bool operator==(const SamplingDefaults&, const SamplingDefaults&) = default;
};

}  // namespace headrace
