// How far apart two runs are in what they say of a token.
#pragma once

#include <cmath>

#include "base/logprobs.h"

namespace headrace {

// 0 where both say minus infinity: a token that is none of the model's outputs.
inline double logprob_distance(const TokenLogprobs& a, const TokenLogprobs& b) {
  return a.logprob == b.logprob ? 0.0 : std::abs(double{a.logprob} - b.logprob);
}

}  // namespace headrace
