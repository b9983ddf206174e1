// Sampling where the results stay on the device: what `sample` and `token_logprobs` (sample.h)
// define, as one launch that the host does not wait for. The token of a row goes to its slot's
// entry of `last_tokens`, from which the next step reads it, and into the row's result, which the
// host copies back when it likes.
//
// Weights are sums of 2^-40ths in 64-bit integers, so that any order of addition gives the same
// bits: the token depends on (logits, parameters, random bits) alone. A token that weighs less than
// 2^-40 of the best is never drawn.
//
// The kernels stand in the table of device_sample_cuda.cu; docs/kernels/sampling.md explains them.
#pragma once

#include <cstdint>

#include "base/ids.h"
#include "ops/op.h"

namespace headrace {

// A token whose logit is changed: `bias` is added, -infinity bans it. Each id once a row. The
// kernel keeps there what it changes for the time of the choice.
struct DeviceLogitBias {
  TokenId token;
  float bias;
  float saved_logit;
  uint32_t saved_count;
};

// What leaves a window of penalties: no token, or the slot's entry of last_tokens.
inline constexpr TokenId kNoneLeaves = -1, kLastLeaves = -2;

// One row of logits, as the kernel reads it. The fields of SampleRow with their meanings.
struct DeviceSampleRow {
  float temperature;
  float top_p, min_p;
  float repetition_penalty, presence_penalty, frequency_penalty;
  int32_t top_k;
  int32_t logprobs;    // k best to report; -1: no log-probabilities at all
  uint64_t random;     // counter_hash(seed, choice, position, kSample)
  int32_t slot;        // row of last_tokens and of token_counts
  TokenId scored;      // >= 0: nothing is drawn, this token's log-probability is reported
  int32_t bias_first;  // of biases
  int32_t bias_count;
  int32_t top_first;  // of tops: `logprobs` entries
  int32_t penalises;  // 1: token_counts of the slot apply, and count what is drawn
  int32_t mask = -1;  // row of masks: only its tokens may be chosen; -1: any may
  // Of a row that penalises by the last tokens alone: the token that token_counts counts once less
  // when it has counted what is drawn, or one of the two values above.
  TokenId leaves = kNoneLeaves;
};

struct DeviceSampleResult {
  TokenId token;  // -1: fault
  int32_t fault;  // 1: NaN or +inf in the row, or nothing can be chosen
  float logprob;  // of `token`; 0 when not asked for
};

struct DeviceTopLogprob {
  TokenId token;
  float logprob;
};

// What is known of a slot's tokens, for penalties: in the prompt, and how often in the output.
// Where penalties look at the last tokens alone: how often among these, where a count that has come
// to the most stays there, as it may in windows of so many tokens and more.
inline constexpr uint16_t kTokenInPrompt = 0x8000;
inline constexpr uint16_t kTokenCountMax = 0x7fff;

inline constexpr int32_t kDeviceTopMax = 1024;  // most log-probabilities of a row

// Everything in device memory.
struct DeviceSampleArgs {
  // [R, V] f32 or bf16, up to 2^20 columns; the same after, but for tokens that a mask forbids,
  // which may be -infinity. Rows may lie apart: what is between them is not read. Fastest where
  // each starts on 16 bytes.
  TensorView logits;
  const DeviceSampleRow* rows;  // [R]
  DeviceLogitBias* biases;
  // [masks, token_mask_words(V)] (base/token_constraint.h); null if no row has one.
  const uint32_t* masks = nullptr;
  uint16_t* token_counts;       // [slots, V]; null if no row penalises
  TokenId* last_tokens;         // [slots]
  DeviceSampleResult* results;  // [R]
  DeviceTopLogprob* tops;
};

void device_sample(OpContext& context, const DeviceSampleArgs& args);

OpCost op_cost(const DeviceSampleArgs& args);
const KernelSet<DeviceSampleArgs>& device_sample_kernels();
KernelTable<DeviceSampleArgs> device_sample_cuda_kernels();
KernelTable<DeviceSampleArgs> device_sample_null_kernels();

}  // namespace headrace
