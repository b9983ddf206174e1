// One row: from its logits to a token, and its log-probabilities. The work behind sample() and
// token_logprobs() (ops/sampling/sample.h), without threads.
#pragma once

#include <cstdint>
#include <vector>

#include "ops/sampling/logit_math.h"
#include "ops/sampling/sample.h"

namespace headrace {

struct Candidate {
  float value;   // logit after penalties, bias and bans
  float weight;  // exp((value - largest) / temperature)
  TokenId token;
  float distance = 0;  // of its surprise from the entropy, where that is looked at
};

// Memory of one thread for rows of `vocabulary` logits.
struct SampleScratch {
  float* values;          // [V] adjusted logits
  float* weights;         // [V]
  float* block_max;       // [ceil(V / kLogitBlock)]
  float* block_sum;       // [ceil(V / kLogitBlock)]
  float* order;           // [ceil(V / kLogitBlock)]
  Candidate* candidates;  // [V]
  uint64_t* seen;         // [ceil(V / 64)] bits

  static int64_t bytes(int64_t vocabulary);
  static SampleScratch carve(std::byte* memory, int64_t vocabulary);
};

SampleResult sample_row(const LogitMath& math, const SampleScratch& scratch, const float* logits,
                        int64_t vocabulary, const SampleRow& row);

// The tokens that a draw of this row is made from, ascending: the set that min-p, top-k and top-p
// keep. Empty for a row at fault; tokens of weight 0 (colder than exp(-87)) are never in it.
std::vector<TokenId> kept_tokens(const LogitMath& math, const SampleScratch& scratch,
                                 const float* logits, int64_t vocabulary, const SampleRow& row);

SampleResult score_token(const LogitMath& math, const SampleScratch& scratch, const float* logits,
                         int64_t vocabulary, TokenId token, int32_t logprobs);

}  // namespace headrace
