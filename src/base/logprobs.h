// Log-probabilities of one token, of the plain softmax over the whole vocabulary.
#pragma once

#include <utility>
#include <vector>

#include "base/ids.h"

namespace headrace {

struct TokenLogprobs {
  TokenId token = -1;
  float logprob = 0;                           // of `token`
  std::vector<std::pair<TokenId, float>> top;  // best first; ties by lower id
};

}  // namespace headrace
