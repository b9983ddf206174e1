// What the form of an answer leaves to choose from, for whoever samples its next token.
#pragma once

#include <cstdint>
#include <span>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "base/token_constraint.h"

namespace headrace {

// Writes which tokens may come at a place of a form, behind so many output tokens (TokenMatcher::
// fill_mask), but for ends that min_tokens forbids. A complete form that cannot go on ends whatever
// min_tokens says. False: nothing may come.
bool fill_form_mask(TokenMatcher& matcher, const SamplingParams& sampling, int32_t output_count,
                    std::span<const TokenId> end_ids, std::span<uint32_t> allowed);

// The ends that min_tokens forbids behind so many output tokens.
template <class Take>
void for_each_early_end(const SamplingParams& sampling, std::span<const TokenId> end_ids,
                        int32_t output_count, const Take& take) {
  if (output_count >= sampling.min_tokens) return;
  if (!sampling.ignore_eos) {
    for (const TokenId token : end_ids) take(token);
  }
  for (const TokenId token : sampling.stop_token_ids) take(token);
}

}  // namespace headrace
