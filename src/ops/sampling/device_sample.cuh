// What the sampling kernels share: the order of tokens, weights, and what a launch is given.
//
// Tokens are ordered by (value descending, id ascending); a place in this order is a 64-bit key.
// Weights are 2^-40ths of the largest value's in 64-bit integers: any order of addition gives the
// same sum, so all kernels draw the same token.
#pragma once

#include <cmath>

#include "gpu/exponential.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/sampling/device_sample.h"

namespace headrace::gpu {

inline constexpr int64_t kSampleVocabularyMax = 1 << 20;
inline constexpr float kWeightOne = 0x1p40f;  // the weight of the largest value

using SampleWeight = unsigned long long;
using SampleKey = unsigned long long;  // ascending: best first
inline constexpr SampleKey kWorstKey = ~SampleKey{0};

// Ascending: best first. -0 is 0.
__device__ __forceinline__ uint32_t sample_rank(float value) {
  const uint32_t bits = __float_as_uint(value + 0.0f);
  return (bits & 0x80000000u) != 0 ? bits : bits ^ 0x7fffffffu;
}
__device__ __forceinline__ float value_of_rank(uint32_t rank) {
  return __uint_as_float((rank & 0x80000000u) != 0 ? rank : rank ^ 0x7fffffffu);
}
__device__ __forceinline__ SampleKey key_of(float value, int32_t token) {
  return static_cast<SampleKey>(sample_rank(value)) << 32 | static_cast<uint32_t>(token);
}
__device__ __forceinline__ float value_of(SampleKey key) {
  return value_of_rank(static_cast<uint32_t>(key >> 32));
}
__device__ __forceinline__ int32_t token_of(SampleKey key) {
  return static_cast<int32_t>(key & 0xffffffffu);
}

// What lies before a place in the order.
struct SampleBefore {
  uint32_t count = 0;
  SampleWeight weight = 0;
};

// The prefix of the order that min-p, top-k and top-p keep.
struct SampleCut {
  SampleKey key = kWorstKey;  // the last that is kept
  SampleWeight weight = 0;    // of all that is kept

  // The same as a comparison of values: all of a row where there is no cut.
  __device__ float value() const { return key == kWorstKey ? -INFINITY : value_of(key); }
  __device__ int32_t token() const { return key == kWorstKey ? INT32_MAX : token_of(key); }
};

// A logit with the penalties of its slot; `seen`: its entry of token_counts.
__device__ __forceinline__ float penalised(const DeviceSampleRow& row, uint16_t seen, float value) {
  if (seen == 0) return value;
  if (row.repetition_penalty != 1.0f) {
    value = value > 0.0f ? value / row.repetition_penalty : value * row.repetition_penalty;
  }
  const int count = seen & kTokenCountMax;
  if (count > 0) {
    // Rounded twice, as on a CPU.
    value -= __fadd_rn(__fmul_rn(row.frequency_penalty, static_cast<float>(count)),
                       row.presence_penalty);
  }
  return value;
}

// How values become weights: exp((value - largest) * factor) in 2^-40ths, exp by the special unit.
struct SampleScale {
  float largest;
  float factor;      // of nats
  float log2_scale;  // factor * log2(e)
  float weight_min;  // what weighs less is not kept (min-p)

  __device__ SampleScale(float largest_value, float nats, float least)
      : largest(largest_value),
        factor(nats),
        log2_scale(nats * 1.4426950408889634f),
        weight_min(least) {}
  // Of a row that is drawn from.
  __device__ static SampleScale of(const DeviceSampleRow& row, float largest) {
    return {largest, 1.0f / fmaxf(row.temperature, 1e-30f), fminf(row.min_p, 1.0f)};
  }
  __device__ __forceinline__ float distance(float value) const {  // >= 0
    return (largest - value) * factor;
  }
  // Without min-p.
  __device__ __forceinline__ float exponential(float value) const {
    return exp2_fast((value - largest) * log2_scale);
  }
  __device__ __forceinline__ float share(float value) const {
    const float w = exponential(value);
    return w < weight_min ? 0.0f : w;
  }
  __device__ __forceinline__ SampleWeight weight(float value) const {
    return static_cast<SampleWeight>(share(value) * kWeightOne);
  }
};

// A prefix of the order that is looked for: the shortest whose tokens are `count` or more, and one
// whose weight is `weight` or more.
struct SampleGoal {
  uint32_t count;
  SampleWeight weight;

  __device__ bool reached(uint32_t tokens, SampleWeight sum) const {
    return tokens >= count && sum >= weight;
  }
};

__device__ inline SampleWeight top_p_goal(float top_p, SampleWeight weight) {
  const double goal = ceil(static_cast<double>(top_p) * static_cast<double>(weight));
  return max(static_cast<SampleWeight>(goal), SampleWeight{1});
}

// floor(u total) for u = the upper 53 bits of `random` / 2^53.
__device__ inline SampleWeight drawn_weight(uint64_t random, SampleWeight total) {
  return __umul64hi(random >> 11 << 11, total);
}

__device__ inline double log_of(SampleWeight weight) {
  return log(static_cast<double>(weight) * 0x1p-40);
}
__device__ inline float logprob_of(float logit, float largest, double log_total) {
  return static_cast<float>(static_cast<double>(logit) - static_cast<double>(largest) - log_total);
}

// Sums of weights w * 2^40, w in [0, 1], truncated each: added up in halves of 20 bits, which an
// addition that rounds towards 0 cuts out, without conversions.
struct WeightSum {
  uint32_t high = 0, low = 0, tokens = 0;

  // The halves of one weight, above the bits of 2^23.
  struct Halves {
    uint32_t high, low;
  };
  static constexpr uint32_t kUnitBits = 0x4b000000u;  // of 2^23
  __device__ __forceinline__ static Halves nothing() { return {kUnitBits, kUnitBits}; }
  __device__ __forceinline__ static Halves halves(float w) {
    constexpr float kHalf = 0x1p20f, kUnit = 0x1p23f;
    const float whole = __fmaf_rz(w, kHalf, kUnit);
    const float rest = __fmaf_rn(w, kHalf, kUnit - whole);
    return {__float_as_uint(whole), __float_as_uint(__fmaf_rz(rest, kHalf, kUnit))};
  }
  __device__ __forceinline__ void add(const Halves& weight) {
    high += weight.high;
    low += weight.low;
    ++tokens;
  }
  __device__ __forceinline__ void add(float w) { add(halves(w)); }
  __device__ __forceinline__ uint32_t high_total() const { return high - tokens * kUnitBits; }
  __device__ __forceinline__ uint32_t low_total() const { return low - tokens * kUnitBits; }
  __device__ __forceinline__ SampleWeight total() const {
    return (static_cast<SampleWeight>(high_total()) << 20) + low_total();
  }
};

__device__ __forceinline__ int sample_warp() {
  return static_cast<int>(threadIdx.x) / kWarpThreads;
}
__device__ __forceinline__ int sample_lane() {
  return static_cast<int>(threadIdx.x) % kWarpThreads;
}

template <class T>
__device__ __forceinline__ T warp_total(T value) {
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}
__device__ __forceinline__ SampleKey warp_best(SampleKey key) {
#pragma unroll
  for (int distance = kWarpThreads / 2; distance > 0; distance /= 2) {
    key = min(key, __shfl_xor_sync(0xffffffffu, key, distance));
  }
  return key;
}
// The sum over the lanes up to and with this one.
template <class T>
__device__ __forceinline__ T warp_scan(T value) {
#pragma unroll
  for (int distance = 1; distance < kWarpThreads; distance *= 2) {
    const T below = __shfl_up_sync(0xffffffffu, value, distance);
    if (sample_lane() >= distance) value += below;
  }
  return value;
}

// Whether a token of the row has another value at the choice than its logit.
__device__ __forceinline__ bool changes_values(const DeviceSampleRow& row) {
  return row.scored < 0 && (row.penalises != 0 || row.bias_count > 0 || row.mask >= 0);
}
__device__ __forceinline__ bool mask_allows(const uint32_t* mask, int32_t token) {
  return (mask[token / 32] >> (token % 32) & 1u) != 0;
}

struct SampleLaunch {
  void* logits;    // [R, V]
  int64_t stride;  // elements
  int32_t vocabulary;
  const DeviceSampleRow* rows;
  DeviceLogitBias* biases;
  const uint32_t* masks;
  uint16_t* token_counts;
  TokenId* last_tokens;
  DeviceSampleResult* results;
  DeviceTopLogprob* tops;

  static SampleLaunch of(const DeviceSampleArgs& args) {
    return {.logits = args.logits.data,
            .stride = args.logits.row_stride / dtype_info(args.logits.dtype).block_bytes,
            .vocabulary = static_cast<int32_t>(args.logits.columns()),
            .rows = args.rows,
            .biases = args.biases,
            .masks = args.masks,
            .token_counts = args.token_counts,
            .last_tokens = args.last_tokens,
            .results = args.results,
            .tops = args.tops};
  }
  // Counts of the row's slot, or null.
  __device__ uint16_t* counts_of(const DeviceSampleRow& row) const {
    return row.penalises != 0 ? token_counts + static_cast<int64_t>(row.slot) * vocabulary
                              : nullptr;
  }
  // The row's mask, or null.
  __device__ const uint32_t* mask_of(const DeviceSampleRow& row) const {
    return row.mask >= 0 ? masks + int64_t{row.mask} * ((vocabulary + 31) / 32) : nullptr;
  }
  // What became of a row, by one thread. token -1: a fault.
  __device__ void finish(int64_t index, const DeviceSampleRow& row, int32_t token,
                         float logprob) const {
    results[index] = {.token = token, .fault = token < 0 ? 1 : 0, .logprob = logprob};
    if (row.scored >= 0) return;
    uint16_t* counts = counts_of(row);
    if (counts != nullptr && token >= 0) {
      const TokenId leaves = row.leaves == kLastLeaves ? last_tokens[row.slot] : row.leaves;
      if (leaves >= 0) count(counts[leaves], -1);
      count(counts[token], 1);
    }
    last_tokens[row.slot] = max(token, 0);  // of a faulty row nobody reads it
  }

 private:
  // The most stays: how much more there was is not known.
  __device__ static void count(uint16_t& entry, int more) {
    const int before = entry & kTokenCountMax;
    if (before + more >= 0 && before < kTokenCountMax) entry = static_cast<uint16_t>(entry + more);
  }
};

}  // namespace headrace::gpu

namespace headrace {

// device_sample_cluster.cu
bool sample_cluster_fits(const DeviceTraits& traits, const DeviceSampleArgs& args);
void run_sample_cluster(OpContext& context, const DeviceSampleArgs& args);

// device_sample_block.cu
bool sample_block_fits(const DeviceTraits& traits, const DeviceSampleArgs& args);
void run_sample_block(OpContext& context, const DeviceSampleArgs& args);
void run_sample_block_wide(OpContext& context, const DeviceSampleArgs& args);

}  // namespace headrace
