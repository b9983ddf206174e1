// A row of logits, f32 or bf16, read by one thread block: passes over it, sums and scans over the
// block, a short list of keys in shared memory.
//
// A segment is what a warp reads at once, 2 KB; the warps take the next ones together, so that the
// block reads one stretch of memory after the other. A pass leaves sums by segments, in the order
// of ids; the draw looks at one segment more closely. A pass may go backwards: what the pass before
// it read last is still in the cache.
//
// Every member function of BlockRow and every function that takes one is called by all threads of
// the block together, and what they return is the same in all of them unless it says otherwise.
#pragma once

#include "gpu/reduce.cuh"
#include "gpu/vector.cuh"
#include "ops/sampling/device_sample.cuh"

namespace headrace::gpu {

// Places are values in bins of 1/64 nat, modulo 64 nats.
inline constexpr int kPlaceBins = 4096;
inline constexpr float kPlacesPerNat = 64.0f;
// The values that bf16 has, of 32 binades and two signs (device_sample_values.cuh).
inline constexpr int kValueBins = 2 * 32 * 128;
inline constexpr int kRankBins = 1024;
inline constexpr int kSegmentAccesses = 4 * kWarpThreads;
inline constexpr int kSegmentsMax = 2048;
// A weight is added to a bin in parts that a row's tokens do not overflow.
inline constexpr int kBlockParts = 4, kBlockPartBits = 11;
static_assert(kSampleVocabularyMax <= int64_t{1} << (32 - kBlockPartBits));
static_assert(kSampleVocabularyMax * int64_t{sizeof(float)} <=
              int64_t{kSegmentsMax} * kSegmentAccesses * kAccessBytes);

template <int kBlockThreads>
struct alignas(16) BlockShared {
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kListMax = 2 * kThreads;
  union {
    struct {
      uint32_t place_count[kPlaceBins];
      float place_excess[kPlaceBins];
    };
    uint32_t value_count[kValueBins];
  };
  uint32_t rank_count[kRankBins];
  uint32_t rank_parts[kBlockParts][kRankBins];
  SampleKey list[kListMax];
  SampleWeight list_weights[kThreads];
  uint32_t list_count;
  SampleKey warp_keys[kWarps];
  SampleWeight warp_weights[kWarps], warp_more[kWarps];
  // By segments: what is kept of each, and tokens that are listed.
  SampleWeight segments[kSegmentsMax];
  uint32_t segment_listed[kSegmentsMax];
  bool any_nan;
  float found_place[2];
  SampleKey found_key;
  SampleWeight found_weight;
  uint32_t found_bin, found_count[2];
  int32_t found_token, found_segment;
};

// One step of sort_list(), of threads `step` apart.
template <class Shared>
__device__ __forceinline__ void exchange_keys(Shared& shared, SampleKey (&keys)[2], int each,
                                              int span, int step) {
  constexpr int kThreads = Shared::kThreads;
  const auto thread = static_cast<int>(threadIdx.x);
  const bool far = step >= kWarpThreads;
  if (far) {
    __syncthreads();
    shared.list[thread] = keys[0];
    if (each > 1) shared.list[thread + kThreads] = keys[1];
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    if (j >= each) break;
    const int i = thread + j * kThreads;
    const SampleKey other =
        far ? shared.list[i ^ step] : __shfl_xor_sync(0xffffffffu, keys[j], step);
    const bool ascends = (i & span) == 0, first = (i & step) == 0;
    keys[j] = ascends == first ? min(keys[j], other) : max(keys[j], other);
  }
}
// Sorts the list's first `count` keys, best first; no others are left. Up to two keys a thread in
// registers (Batcher's bitonic network), partners in other warps through the list itself.
template <class Shared>
__device__ __noinline__ void sort_list(Shared& shared, int count) {
  constexpr int kThreads = Shared::kThreads;
  const auto thread = static_cast<int>(threadIdx.x);
  __syncthreads();
  const int each = count <= kThreads ? 1 : 2;
  SampleKey keys[2];
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    keys[j] = thread + j * kThreads < count ? shared.list[thread + j * kThreads] : kWorstKey;
  }
#pragma unroll 1
  for (int span = 2; span < 2 * count; span *= 2) {
#pragma unroll 1
    for (int step = span / 2; step > 0; step /= 2) {
      if (step == kThreads) {
        const SampleKey low = min(keys[0], keys[1]);
        keys[1] = max(keys[0], keys[1]);
        keys[0] = low;
      } else {
        exchange_keys(shared, keys, each, span, step);
      }
    }
  }
  __syncthreads();
  shared.list[thread] = keys[0];
  shared.list[thread + kThreads] = keys[1];
  __syncthreads();
}

// Penalties of one token and of four, as calls: rows without them should not walk around their
// code.
__device__ __noinline__ inline float penalise_one(const DeviceSampleRow& asked, uint16_t seen,
                                                  float value) {
  return penalised(asked, seen, value);
}
__device__ __noinline__ inline float4 penalise_four(const DeviceSampleRow& asked,
                                                    const uint16_t* counts, float4 values) {
  return {penalised(asked, counts[0], values.x), penalised(asked, counts[1], values.y),
          penalised(asked, counts[2], values.z), penalised(asked, counts[3], values.w)};
}

// A value that the element type has.
__device__ __forceinline__ void store_exact(float* to, float value) { *to = value; }
__device__ __forceinline__ void store_exact(__nv_bfloat16* to, float value) {
  *reinterpret_cast<uint16_t*>(to) = static_cast<uint16_t>(__float_as_uint(value) >> 16);
}
// A mask, as a call for the same reason.
template <int kThreads, class Element>
__device__ __noinline__ void forbid_tokens(Element* logits, int32_t size, const uint32_t* mask) {
#pragma unroll 4
  for (int32_t token = static_cast<int32_t>(threadIdx.x); token < size; token += kThreads) {
    if (!mask_allows(mask, token)) store_exact(logits + token, to_float(logits[token]) - INFINITY);
  }
}

enum class PassOrder { kForwards, kBackwards };

template <class Element, int kBlockThreads>
class BlockRow {
 public:
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kWidth = kAccessBytes / static_cast<int>(sizeof(Element));
  static constexpr bool kCoarseValues = sizeof(Element) < sizeof(float);
  static constexpr int kSegmentTokens = kSegmentAccesses * kWidth;
  static constexpr int kAhead = kSegmentAccesses / kWarpThreads;
  using Shared = BlockShared<kThreads>;
  static constexpr int kListMax = Shared::kListMax;

  __device__ BlockRow(Shared& shared, Element* logits, int32_t vocabulary)
      : shared(shared),
        size(vocabulary),
        logits_(logits),
        accesses_((vocabulary + kWidth - 1) / kWidth),
        whole_(reinterpret_cast<uintptr_t>(logits) % kAccessBytes == 0 ? vocabulary / kWidth : 0) {}

  Shared& shared;
  const int32_t size;

  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x); }

  // --- the row's values ---

  // Adds -infinity to the logits that the mask forbids (null: none), for good: a NaN or +inf among
  // them still is a fault.
  __device__ void forbid(const uint32_t* mask) {
    if (mask != nullptr) forbid_tokens<kThreads>(logits_, size, mask);
    __syncthreads();
  }
  // From here on values are those with the penalties of `counts` (null: none), and the tokens of
  // `biases` are seen by for_each_biased() alone: their logits are -infinity until put_back().
  __device__ void change(const uint16_t* counts, const DeviceSampleRow& asked,
                         DeviceLogitBias* biases) {
    counts_ = counts;
    asked_ = &asked;
    biases_ = biases;
    bias_count_ = asked.bias_count;
    for (int i = thread(); i < bias_count_; i += kThreads) {
      biases_[i].saved_logit = to_float(logits_[biases_[i].token]);
      store_exact(logits_ + biases_[i].token, -INFINITY);
    }
    __syncthreads();
  }
  __device__ void put_back() {
    __syncthreads();
    for (int i = thread(); i < bias_count_; i += kThreads) {
      store_exact(logits_ + biases_[i].token, biases_[i].saved_logit);
    }
    __syncthreads();
  }
  __device__ float logit(int32_t token) const { return to_float(logits_[token]); }
  __device__ float value(int32_t token) const { return penalised_at(token, logit(token)); }

  // For the accesses of this warp's segments, ascending or descending: words(access, i, its 16
  // bytes) for the i-th access of a segment that is whole and on 16 bytes, edge(access) for those
  // of another. `ended(segment)` after each, by all lanes.
  template <PassOrder kOrder, class Words, class Edge, class Ended>
  __device__ __forceinline__ void for_each_words(const Words& words, const Edge& edge,
                                                 const Ended& ended) {
    const auto* accesses = reinterpret_cast<const uint4*>(logits_);
    const int32_t whole = whole_;
    const int32_t rounds = (segments() + kWarps - 1) / kWarps;
    for (int32_t round = 0; round < rounds; ++round) {
      const int32_t of_round = kOrder == PassOrder::kForwards ? round : rounds - 1 - round;
      const int32_t segment = of_round * kWarps + sample_warp();
      const int32_t at = segment * kSegmentAccesses + sample_lane();
      if ((segment + 1) * kSegmentAccesses <= whole) {
        uint4 held[kAhead];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) held[i] = accesses[at + i * kWarpThreads];
#pragma unroll
        for (int i = 0; i < kAhead; ++i) words(at + i * kWarpThreads, i, held[i]);
      } else {
#pragma unroll 1
        for (int i = 0; i < kAhead; ++i) edge(at + i * kWarpThreads);
      }
      __syncwarp();
      ended(segment);
    }
  }
  // The same with body(first token, kWidth values); a value past the end of the row is -infinity.
  // `picked(token)` for those values whose bits are set in what it returns.
  template <PassOrder kOrder, class Body, class Picked, class Ended>
  __device__ __forceinline__ void for_each_access(const Body& body, const Picked& picked,
                                                  const Ended& ended) {
    static_assert(kAhead * kWidth <= 32);
    const uint16_t* counts = counts_;
    uint32_t picks = 0;  // of a segment
    for_each_words<kOrder>(
        [&](int32_t access, int i, const uint4& words) {
          float values[kWidth];
          take(words, values);
          if (counts != nullptr) penalise(access * kWidth, values);
          picks |= body(access * kWidth, values) << (i * kWidth);
        },
        [&](int32_t access) {
          float values[kWidth];
          load_edge(access, values);
          for (uint32_t bits = body(access * kWidth, values); bits != 0; bits &= bits - 1) {
            const int32_t token = access * kWidth + __ffs(static_cast<int>(bits)) - 1;
            if (token < size) picked(token);
          }
        },
        [&](int32_t segment) {
          const int32_t at = segment * kSegmentAccesses + sample_lane();
          for (; picks != 0; picks &= picks - 1) {
            const int i = __ffs(static_cast<int>(picks)) - 1;
            picked((at + i / kWidth * kWarpThreads) * kWidth + i % kWidth);
          }
          __syncwarp();
          ended(segment);
        });
  }
  // The same where no values are picked.
  template <PassOrder kOrder, class Body>
  __device__ __forceinline__ void for_each_access(const Body& body) {
    const auto whole_body = [&](int32_t first, const float(&values)[kWidth]) {
      body(first, values);
      return 0u;
    };
    for_each_access<kOrder>(
        whole_body, [](int32_t) {}, [](int32_t) {});
  }
  // body(token, value) for every token of the row, in any order; for rare passes.
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    for (int32_t at = thread(); at < size; at += kAhead * kThreads) {
      float values[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t token = at + i * kThreads;
        values[i] = token < size ? value(token) : 0.0f;
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        if (at + i * kThreads < size) body(at + i * kThreads, values[i]);
      }
    }
    for_each_biased(body);
  }
  // body(token, value) for the tokens with a bias, which for_each_access() gives as -infinity.
  template <class Body>
  __device__ __forceinline__ void for_each_biased(const Body& body) const {
    for (int i = thread(); i < bias_count_; i += kThreads) body(biases_[i].token, biased(i));
  }
  __device__ int32_t segments() const {
    return (accesses_ + kSegmentAccesses - 1) / kSegmentAccesses;
  }
  __device__ static int32_t segment_of(int32_t token) { return token / kSegmentTokens; }

  // --- over the block ---

  __device__ SampleKey best(SampleKey key) {
    key = warp_best(key);
    __syncthreads();  // who reads the keys of the call before has done so
    if (sample_lane() == 0) shared.warp_keys[sample_warp()] = key;
    __syncthreads();
    return warp_best(sample_lane() < kWarps ? shared.warp_keys[sample_lane()] : kWorstKey);
  }
  __device__ void sum(SampleWeight& weight, SampleWeight& more) {
    weight = warp_total(weight);
    more = warp_total(more);
    __syncthreads();
    if (sample_lane() == 0) {
      shared.warp_weights[sample_warp()] = weight;
      shared.warp_more[sample_warp()] = more;
    }
    __syncthreads();
    const bool there = sample_lane() < kWarps;
    weight = warp_total(there ? shared.warp_weights[sample_lane()] : 0);
    more = warp_total(there ? shared.warp_more[sample_lane()] : 0);
  }
  // The sums over the threads up to and with this one; `total`: over all.
  __device__ SampleWeight scan(SampleWeight weight, SampleWeight& total) {
    const SampleWeight reached = warp_scan(weight);
    __syncthreads();
    if (sample_lane() == kWarpThreads - 1) shared.warp_weights[sample_warp()] = reached;
    __syncthreads();
    const SampleWeight of_warp = sample_lane() < kWarps ? shared.warp_weights[sample_lane()] : 0;
    total = warp_total(of_warp);
    return reached + warp_total(sample_lane() < sample_warp() ? of_warp : 0);
  }

  // --- the list ---

  __device__ void clear_list() {
    __syncthreads();
    if (thread() == 0) shared.list_count = 0;
    __syncthreads();
  }
  // By one thread. What is beyond kListMax is counted only.
  __device__ __forceinline__ void pick(SampleKey key) {
    const uint32_t at = atomicAdd(&shared.list_count, 1u);
    if (at < kListMax) shared.list[at] = key;
  }
  // --- segments ---

  __device__ void clear_segments() {
    __syncthreads();
    for (int i = thread(); i < segments(); i += kThreads) {
      shared.segments[i] = 0;
      shared.segment_listed[i] = 0;
    }
    __syncthreads();
  }
  // What the lanes' tokens of a segment weigh becomes shared.segments'; in `ended` of a pass.
  __device__ __forceinline__ SampleWeight keep_segment(int32_t segment, WeightSum& sum) {
    const uint32_t high = __reduce_add_sync(0xffffffffu, sum.high_total());
    const uint32_t low = __reduce_add_sync(0xffffffffu, sum.low_total());
    const SampleWeight weight = (static_cast<SampleWeight>(high) << 20) + low;
    if (sample_lane() == 0 && segment < segments()) shared.segments[segment] = weight;
    sum = {};
    return weight;
  }
  // By one thread, for a token of any segment.
  __device__ void add_to_segment(int32_t token, SampleWeight weight) {
    atomicAdd(&shared.segments[segment_of(token)], weight);
  }
  __device__ __forceinline__ static uint32_t weight_part(SampleWeight weight, int part) {
    return static_cast<uint32_t>(weight >> part * kBlockPartBits) & ((1u << kBlockPartBits) - 1);
  }

  // The sum of of_segment(segment) over this thread's segments, which follow each other.
  static constexpr int kSegmentsEach = kSegmentsMax / kThreads;
  template <class OfSegment>
  __device__ SampleWeight of_own_segments(const OfSegment& of_segment) const {
    const int32_t each = (segments() + kThreads - 1) / kThreads;
    SampleWeight sum = 0;
    for (int i = 0; i < each; ++i) {
      const int32_t segment = thread() * each + i;
      sum += segment < segments() ? of_segment(segment) : 0;
    }
    return sum;
  }
  // The token, in order of ids, in which the running sum of weight_of(token, value) passes
  // target(sum of all); of_segment(segment): what its tokens weigh. REQUIRES: there is one
  template <class OfSegment, class Target, class WeightOf>
  __device__ int32_t locate(const OfSegment& of_segment, const Target& target,
                            const WeightOf& weight_of) {
    SampleWeight all;
    const SampleWeight own = of_own_segments(of_segment);
    const SampleWeight reached = scan(own, all);
    const SampleWeight left = target(all);
    SampleWeight before = reached - own;
    if (left >= before && left < reached) {
      int32_t segment = thread() * ((segments() + kThreads - 1) / kThreads);
      for (; left >= before + of_segment(segment); ++segment) before += of_segment(segment);
      shared.found_segment = segment;
      shared.found_weight = left - before;
    }
    __syncthreads();
    return locate_in(shared.found_segment, shared.found_weight, weight_of);
  }

 private:
  template <class WeightOf>
  __device__ int32_t locate_in(int32_t segment, SampleWeight left, const WeightOf& weight_of) {
    constexpr int kEach = (kSegmentTokens + kThreads - 1) / kThreads;
    const int32_t first = segment * kSegmentTokens + kEach * thread();
    const int32_t end = min((segment + 1) * kSegmentTokens, size);
    SampleWeight weights[kEach], own = 0, all;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      weights[i] = first + i < end ? weight_of(first + i, changed_value(first + i)) : 0;
      own += weights[i];
    }
    SampleWeight before = scan(own, all) - own;
#pragma unroll
    for (int i = 0; i < kEach; ++i) {
      if (left >= before && left < before + weights[i]) shared.found_token = first + i;
      before += weights[i];
    }
    __syncthreads();
    return shared.found_token;
  }

  __device__ __forceinline__ static void take(const uint4& words, float (&values)[kWidth]) {
    const uint32_t all[4] = {words.x, words.y, words.z, words.w};
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if constexpr (kCoarseValues) {  // bf16 is the upper half of a float
        values[2 * i] = __uint_as_float(all[i] << 16);
        values[2 * i + 1] = __uint_as_float(all[i] & 0xffff0000u);
      } else {
        values[i] = __uint_as_float(all[i]);
      }
    }
  }
  __device__ __forceinline__ float penalised_at(int32_t token, float logit) const {
    return counts_ == nullptr ? logit : penalise_one(*asked_, counts_[token], logit);
  }
  __device__ __forceinline__ void penalise(int32_t first, float (&values)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWidth; i += 4) {
      const float4 four = penalise_four(*asked_, counts_ + first + i,
                                        {values[i], values[i + 1], values[i + 2], values[i + 3]});
      values[i] = four.x;
      values[i + 1] = four.y;
      values[i + 2] = four.z;
      values[i + 3] = four.w;
    }
  }
  // An access that is not aligned, or ends after the row.
  __device__ __forceinline__ void load_edge(int32_t access, float (&values)[kWidth]) const {
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const int32_t token = access * kWidth + i;
      values[i] = token < size ? value(token) : -INFINITY;
    }
  }
  // The value of a biased token, its penalties included.
  __device__ float biased(int i) const {
    return penalised_at(biases_[i].token, biases_[i].saved_logit) + biases_[i].bias;
  }
  // With its bias.
  __device__ float changed_value(int32_t token) const {
    for (int i = 0; i < bias_count_; ++i) {
      if (biases_[i].token == token) return biased(i);
    }
    return value(token);
  }
  Element* const logits_;
  const int32_t accesses_;  // of the row
  const int32_t whole_;     // of them on 16 bytes and whole
  const uint16_t* counts_ = nullptr;
  const DeviceSampleRow* asked_ = nullptr;
  DeviceLogitBias* biases_ = nullptr;
  int32_t bias_count_ = 0;
};

}  // namespace headrace::gpu
