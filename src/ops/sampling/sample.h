// From logits to tokens, and log-probabilities of given tokens.
//
// Order of operations (vLLM's, with llama.cpp's samplers where they stand there): penalties (DRY
// among them), logit bias, bans (masks among them), top-n-sigma, temperature, min-p, top-k,
// typical, top-p, XTC, draw. The kept sets are exact: candidates are ordered by (value descending,
// id ascending), top-k keeps the first k of them, top-p the shortest prefix whose probability
// reaches p (after top-k, at least one). A draw is the inverse of the cumulative distribution in id
// order at a counter-based random number, so it depends on (logits, parameters, seed, choice,
// position) alone.
//
// Log-probabilities are those of the plain softmax of the raw logits, before everything above, and
// come from one function: a token's value at sampling and in a later echo is the same, bit for bit.
#pragma once

#include <cstdint>
#include <span>
#include <utility>
#include <vector>

#include "base/ids.h"
#include "base/sampling_params.h"
#include "ops/op.h"

namespace headrace {

struct TokenCount {
  TokenId token = 0;
  int32_t count = 0;
};

// How to choose the token of one row. Ids must be in [0, V).
struct SampleRow {
  float temperature = 1.0f;  // 0 = greedy: the lowest id of the largest logit
  int32_t top_k = 0;         // <= 0 = off
  float top_p = 1.0f;        // >= 1 = off
  float min_p = 0.0f;        // keep p >= min_p * p_max; 0 = off
  float repetition_penalty =
      1.0f;                        // tokens of prompt or output: logit > 0 divided, else multiplied
  float presence_penalty = 0.0f;   // tokens of the output: subtracted once
  float frequency_penalty = 0.0f;  // tokens of the output: subtracted once for each occurrence
  float top_n_sigma = 0.0f;        // 0 = off
  float typical_p = 1.0f;          // >= 1 = off
  float xtc_probability = 0.0f;    // 0 = off
  float xtc_threshold = 0.1f;
  const DryPenalty* dry = nullptr;     // nullptr = off
  std::span<const TokenId> history;    // for DRY: prompt and output in order
  std::span<const TokenId> prompt;     // in any order, repeats allowed
  std::span<const TokenCount> output;  // each id once
  std::span<const std::pair<TokenId, float>> logit_bias;
  std::span<const TokenId> banned;  // never chosen (end ids before min_tokens)
  // [token_mask_words(V)] whether a token may be chosen (base/token_constraint.h). Empty: any may.
  std::span<const uint32_t> allowed;
  uint64_t seed = 0;
  uint64_t choice = 0;
  uint64_t position = 0;  // of the token to be drawn
  int32_t logprobs = -1;  // k >= 0: report the chosen token's log-probability and the k best
};

struct TokenLogprob {
  TokenId token = -1;
  float logprob = 0.0f;
};

struct SampleResult {
  TokenId token = -1;
  // The row holds a NaN or +inf, or nothing can be chosen. Only this row is affected: token is -1.
  bool fault = false;
  float logprob = 0.0f;           // of `token`; 0 when not asked for
  std::vector<TokenLogprob> top;  // best first, ties by lower id; empty when not asked for
};

struct SampleArgs {
  ConstTensorView logits;           // [R, V] f32
  std::span<const SampleRow> rows;  // [R]
  std::span<SampleResult> results;  // [R]
};

// Takes sample_workspace_bytes() of the workspace. Rows are shared out over the pool.
void sample(OpContext& context, const SampleArgs& args);

OpCost op_cost(const SampleArgs& args);
const KernelSet<SampleArgs>& sample_kernels();
KernelTable<SampleArgs> sample_cpu_kernels();

int64_t sample_workspace_bytes(int thread_count, int64_t vocabulary);

struct TokenLogprobsArgs {
  ConstTensorView logits;           // [R, V] f32
  std::span<const TokenId> tokens;  // [R] the given token of each row
  int32_t logprobs = 0;             // how many of the best to report
  std::span<SampleResult> results;  // [R]; token, fault, logprob, top
};

// For prompt log-probabilities and echo.
void token_logprobs(OpContext& context, const TokenLogprobsArgs& args);

OpCost op_cost(const TokenLogprobsArgs& args);
const KernelSet<TokenLogprobsArgs>& token_logprobs_kernels();
KernelTable<TokenLogprobsArgs> token_logprobs_cpu_kernels();

}  // namespace headrace
