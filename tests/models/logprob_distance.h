// How far apart two runs are in what they say of their tokens.
#pragma once

#include <algorithm>
#include <cmath>
#include <vector>

#include "base/logprobs.h"

namespace headrace {

// Of log-probabilities of the same tokens, as far as texts go together. 0 where both say minus
// infinity: a token that is none of the model's outputs.
inline std::vector<double> logprob_distances(const std::vector<TokenLogprobs>& a,
                                             const std::vector<TokenLogprobs>& b) {
  std::vector<double> all;
  for (size_t i = 0; i < std::min(a.size(), b.size()) && a[i].token == b[i].token; ++i) {
    const bool alike = a[i].logprob == b[i].logprob;
    all.push_back(alike ? 0.0 : std::abs(double{a[i].logprob} - b[i].logprob));
  }
  return all;
}

}  // namespace headrace
