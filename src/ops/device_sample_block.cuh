// A row of logits, f32 or bf16, read by one thread block: passes over it, sums and scans over the
// block, a short list of keys in shared memory.
//
// Each warp reads a segment of the row, so that a pass leaves sums by segments in the order of ids;
// the draw looks at one segment more closely. A pass may go backwards: what the pass before it read
// last is still in the cache.
//
// Every member function of BlockRow and every function that takes one is called by all threads of
// the block together, and what they return is the same in all of them unless it says otherwise.
#pragma once

#include "gpu/reduce.cuh"
#include "gpu/vector.cuh"
#include "ops/device_sample.cuh"

namespace headrace::gpu {

// Places are values in bins of 1/64 nat, modulo 64 nats.
inline constexpr int kPlaceBins = 4096;
inline constexpr float kPlacesPerNat = 64.0f;
inline constexpr int kRankBins = 1024;
// A weight is added to a bin or a segment in parts that a row's tokens do not overflow.
inline constexpr int kBlockParts = 4, kBlockPartBits = 11;
inline constexpr int64_t kBlockVocabularyMax = 1 << 20;
static_assert(kBlockVocabularyMax <= int64_t{1} << (32 - kBlockPartBits));

template <int kThreads>
struct alignas(16) BlockShared {
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kListMax = 2 * kThreads;
  uint32_t place_count[kPlaceBins];
  float place_excess[kPlaceBins];
  uint32_t rank_count[kRankBins];
  uint32_t rank_parts[kBlockParts][kRankBins];
  SampleKey list[kListMax];
  SampleWeight list_weights[kThreads];
  uint32_t list_count;
  SampleKey warp_keys[kWarps];
  SampleWeight warp_weights[kWarps], warp_more[kWarps];
  // By segments: what is kept of each, and tokens that are listed.
  SampleWeight segments[kWarps];
  uint32_t segment_parts[kWarps][kBlockParts];
  uint32_t segment_listed[kWarps];
  bool any_nan;
  float found_place[2];
  SampleKey found_key;
  SampleWeight found_weight;
  uint32_t found_bin, found_count[2];
  int32_t found_token;
};

// One step of sort_list(), of threads `step` apart.
template <int kThreads>
__device__ __forceinline__ void exchange_keys(BlockShared<kThreads>& shared, SampleKey (&keys)[2],
                                              int span, int step) {
  const auto thread = static_cast<int>(threadIdx.x);
  const bool far = step >= kWarpThreads;
  if (far) {
    __syncthreads();
    shared.list[thread] = keys[0];
    shared.list[thread + kThreads] = keys[1];
    __syncthreads();
  }
#pragma unroll
  for (int j = 0; j < 2; ++j) {
    const int i = thread + j * kThreads;
    const SampleKey other =
        far ? shared.list[i ^ step] : __shfl_xor_sync(0xffffffffu, keys[j], step);
    const bool ascends = (i & span) == 0, first = (i & step) == 0;
    keys[j] = ascends == first ? min(keys[j], other) : max(keys[j], other);
  }
}
// Sorts the list's first `count` keys, best first; no others are left. Two keys a thread in
// registers (Batcher's bitonic network), partners in other warps through the list itself.
template <int kThreads>
__device__ __noinline__ void sort_list(BlockShared<kThreads>& shared, int count) {
  const auto thread = static_cast<int>(threadIdx.x);
  __syncthreads();
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
        exchange_keys(shared, keys, span, step);
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

enum class PassOrder { kForwards, kBackwards };

template <class Element, int kBlockThreads>
class BlockRow {
 public:
  static constexpr int kThreads = kBlockThreads;
  static constexpr int kWarps = kThreads / kWarpThreads;
  static constexpr int kWidth = kAccessBytes / static_cast<int>(sizeof(Element));
  static constexpr bool kCoarseValues = sizeof(Element) < sizeof(float);
  using Shared = BlockShared<kThreads>;
  static constexpr int kListMax = Shared::kListMax;

  __device__ BlockRow(Shared& shared, Element* logits, int32_t vocabulary)
      : shared(shared),
        size(vocabulary),
        logits_(logits),
        accesses_((vocabulary + kWidth - 1) / kWidth),
        whole_(reinterpret_cast<uintptr_t>(logits) % kAccessBytes == 0 ? vocabulary / kWidth : 0),
        segment_((((accesses_ + kWarps - 1) / kWarps) + 7) / 8 * 8) {}

  Shared& shared;
  const int32_t size;

  __device__ __forceinline__ static int thread() { return static_cast<int>(threadIdx.x); }

  // --- the row's values ---

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
      store_exact(biases_[i].token, -INFINITY);
    }
    __syncthreads();
  }
  __device__ void put_back() {
    __syncthreads();
    for (int i = thread(); i < bias_count_; i += kThreads) {
      store_exact(biases_[i].token, biases_[i].saved_logit);
    }
    __syncthreads();
  }
  __device__ float logit(int32_t token) const { return to_float(logits_[token]); }
  __device__ float value(int32_t token) const { return penalised_at(token, logit(token)); }

  // body(first token, kWidth values) for the accesses of this warp's segment, ascending or
  // descending for each thread; a value past the end of the row is -infinity. `picked(token)` for
  // those values whose bits are set in what it returns.
  template <PassOrder kOrder, class Body, class Picked>
  __device__ __forceinline__ void for_each_access(const Body& body, const Picked& picked) const {
    constexpr int kAhead = 4, kStep = kAhead * kWarpThreads;
    static_assert(kAhead * kWidth <= 32);
    const int32_t first = segment_first(sample_warp()), last = segment_last(sample_warp());
    const int32_t whole = min(last, whole_);
    const auto* accesses = reinterpret_cast<const uint4*>(logits_);
    const uint16_t* counts = counts_;
    const int32_t steps = (max(whole - first, 0) + kStep - 1) / kStep;
    for (int32_t step = 0; step < steps; ++step) {
      const int32_t base = kOrder == PassOrder::kForwards ? step : steps - 1 - step;
      const int32_t at = first + base * kStep + sample_lane();
      uint4 held[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        held[i] = at + i * kWarpThreads < whole ? accesses[at + i * kWarpThreads] : nothing();
      }
      uint32_t picks = 0;
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        const int32_t access = at + i * kWarpThreads;
        float values[kWidth];
        take(held[i], values);
        if (counts != nullptr && access < whole) penalise(access * kWidth, values);
        const uint32_t own = body(access * kWidth, values);
        picks |= access < whole ? own << (i * kWidth) : 0;
      }
      for (; picks != 0; picks &= picks - 1) {
        const int i = __ffs(static_cast<int>(picks)) - 1;
        picked((at + i / kWidth * kWarpThreads) * kWidth + i % kWidth);
      }
    }
    for (int32_t at = max(first, whole) + sample_lane(); at < last; at += kWarpThreads) {
      float values[kWidth];
      load_edge(at, values);
      for (uint32_t picks = body(at * kWidth, values); picks != 0; picks &= picks - 1) {
        picked(at * kWidth + __ffs(static_cast<int>(picks)) - 1);
      }
    }
  }
  // The same where no values are picked.
  template <PassOrder kOrder, class Body>
  __device__ __forceinline__ void for_each_access(const Body& body) const {
    for_each_access<kOrder>(
        [&](int32_t first, const float(&values)[kWidth]) {
          body(first, values);
          return 0u;
        },
        [](int32_t) {});
  }
  // body(token, value) for every token of the row, in any order; for rare passes.
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    constexpr int kAhead = 4;
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
  __device__ int32_t segment_of(int32_t token) const { return token / (segment_ * kWidth); }

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
    if (thread() < kWarps) {
      shared.segments[thread()] = 0;
      shared.segment_listed[thread()] = 0;
#pragma unroll
      for (int part = 0; part < kBlockParts; ++part) shared.segment_parts[thread()][part] = 0;
    }
    __syncthreads();
  }
  // By one thread, for a token of any segment; in shared.segments after fold_segments().
  __device__ void add_to_segment(int32_t token, SampleWeight weight) {
    uint32_t* parts = shared.segment_parts[segment_of(token)];
#pragma unroll
    for (int part = 0; part < kBlockParts; ++part) {
      const uint32_t bits = weight_part(weight, part);
      if (bits != 0) atomicAdd(&parts[part], bits);
    }
  }
  __device__ void fold_segments() {
    __syncthreads();
    if (thread() < kWarps) {
      SampleWeight weight = shared.segments[thread()];
#pragma unroll
      for (int part = 0; part < kBlockParts; ++part) {
        weight += static_cast<SampleWeight>(shared.segment_parts[thread()][part])
                  << part * kBlockPartBits;
      }
      shared.segments[thread()] = weight;
    }
    __syncthreads();
  }
  __device__ __forceinline__ static uint32_t weight_part(SampleWeight weight, int part) {
    return static_cast<uint32_t>(weight >> part * kBlockPartBits) & ((1u << kBlockPartBits) - 1);
  }

  // The token of a segment, in order of ids, in which the running sum of weight_of(token, value)
  // passes `left`; -1: it does not.
  template <class WeightOf>
  __device__ int32_t locate(int segment, SampleWeight left, const WeightOf& weight_of) {
    constexpr int kEach = 16;  // tokens that follow each other, of a thread
    const int32_t end = min(segment_last(segment) * kWidth, size);
    int32_t first = segment_first(segment) * kWidth + kEach * thread();
    for (int32_t round = segment_first(segment) * kWidth; round < end; round += kThreads * kEach) {
      float values[kEach];
      load_following<kEach>(first, values);
      const auto weight_at = [&](int i) -> SampleWeight {
        return first + i < end ? weight_of(first + i, values[i]) : 0;
      };
      SampleWeight own = 0, all;
#pragma unroll
      for (int i = 0; i < kEach; ++i) own += weight_at(i);
      const SampleWeight reached = scan(own, all);
      if (left < all) {
        SampleWeight before = reached - own;
        if (left >= before && left < reached) {
#pragma unroll
          for (int i = 0; i < kEach; ++i) {
            const SampleWeight weight = weight_at(i);
            if (left >= before && left < before + weight) shared.found_token = first + i;
            before += weight;
          }
        }
        __syncthreads();
        return shared.found_token;
      }
      left -= all;
      first += kThreads * kEach;
    }
    return -1;
  }

 private:
  // In accesses.
  __device__ int32_t segment_first(int segment) const { return min(segment * segment_, accesses_); }
  __device__ int32_t segment_last(int segment) const {
    return min((segment + 1) * segment_, accesses_);
  }

  // An access of values -infinity.
  __device__ __forceinline__ static uint4 nothing() {
    const uint32_t word = kCoarseValues ? 0xff80ff80u : 0xff800000u;
    return {word, word, word, word};
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
  template <int kEach>
  __device__ void load_following(int32_t first, float (&values)[kEach]) const {
#pragma unroll
    for (int a = 0; a < kEach / kWidth; ++a) {
      const int32_t access = first / kWidth + a;
      float some[kWidth];
      if (access < whole_) {
        take(reinterpret_cast<const uint4*>(logits_)[access], some);
        if (counts_ != nullptr) penalise(access * kWidth, some);
      } else {
        load_edge(access, some);
      }
#pragma unroll
      for (int i = 0; i < kWidth; ++i) values[a * kWidth + i] = some[i];
    }
    for (int b = 0; b < bias_count_; ++b) {
      const int32_t at = biases_[b].token - first;
      if (at < 0 || at >= kEach) continue;
      const float changed = biased(b);
#pragma unroll
      for (int i = 0; i < kEach; ++i) values[i] = at == i ? changed : values[i];
    }
  }
  // Of a value that the element type has.
  __device__ void store_exact(int32_t token, float value) {
    if constexpr (kCoarseValues) {
      reinterpret_cast<uint16_t*>(logits_)[token] =
          static_cast<uint16_t>(__float_as_uint(value) >> 16);
    } else {
      logits_[token] = value;
    }
  }
  Element* const logits_;
  const int32_t accesses_;  // of the row
  const int32_t whole_;     // of them on 16 bytes and whole
  const int32_t segment_;   // of a segment
  const uint16_t* counts_ = nullptr;
  const DeviceSampleRow* asked_ = nullptr;
  DeviceLogitBias* biases_ = nullptr;
  int32_t bias_count_ = 0;
};

}  // namespace headrace::gpu
