// The DRY penalty (base/sampling_params.h): which tokens would go on with a repetition.
#pragma once

#include <algorithm>
#include <cmath>
#include <cstdint>
#include <span>
#include <unordered_map>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"

namespace headrace {

// Of each token that followed an earlier copy of what the text ends with: how long the longest such
// copy is, in tokens. No copy goes across a breaker. `history` in order; linear in its length.
std::unordered_map<TokenId, int32_t> repeated_lengths(const DryPenalty& dry,
                                                      std::span<const TokenId> history);

// Visits each token that is to lose something, once: visit(token, what its logit loses).
template <class Visit>
void for_each_repeating(const DryPenalty& dry, std::span<const TokenId> history,
                        const Visit& visit) {
  // Nothing is chosen beside what loses so much, and what is chosen all the same stays finite.
  constexpr float kPenaltyMax = 1e6f;
  constexpr float kLogMax = 80.0f;  // a float holds e to its power
  const float log_base = std::log(std::max(1.0f, dry.base));
  for (const auto& [token, length] : repeated_lengths(dry, history)) {
    if (length < dry.allowed_length) continue;
    const float power = static_cast<float>(length - dry.allowed_length) * log_base;
    visit(token, std::min(kPenaltyMax, dry.multiplier * std::exp(std::min(power, kLogMax))));
  }
}

}  // namespace headrace
