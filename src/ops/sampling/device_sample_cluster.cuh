// A row of logits in the shared memory of a cluster of thread blocks: the passes over it, and sums
// over the cluster. Device memory is read once.
//
// Every member function of ClusterRow and every function that takes one is called by all threads of
// all blocks of the cluster together, and what they return is the same in all of them unless it
// says otherwise: what comes next is decided by that alone.
#pragma once

#include <cstddef>

#include "gpu/cluster.cuh"
#include "gpu/tma.cuh"
#include "gpu/vector.cuh"
#include "ops/sampling/device_sample.cuh"

namespace headrace::gpu {

inline constexpr int kSampleBlocks = 8;  // of a cluster
inline constexpr int kSampleThreads = 512;
inline constexpr int kSampleWarps = kSampleThreads / kWarpThreads;

// Of distances from the largest value: 32 nats, beyond which weights are 0.
inline constexpr int kCoarseBins = 4096;
inline constexpr float kCoarsePerNat = 128.0f;
inline constexpr int kCoarseEach = kCoarseBins / kSampleThreads;
inline constexpr int kFineBins = kSampleThreads;
// A weight is added to a bin in parts that the tokens of a block do not overflow.
inline constexpr int kFineParts = 3, kFinePartBits = 14;
inline constexpr int64_t kSampleSliceMax = 1 << (32 - kFinePartBits);

inline constexpr int kListMax = 1024;                // keys among which a block looks for the cut
inline constexpr int kPickedMax = 256;               // keys that a block gives to the others
inline constexpr int kGatheredMax = kSampleThreads;  // of all blocks
inline constexpr uint32_t kWorstRank = 0xff800000u;  // of -inf

struct FineBin {
  uint32_t count, parts[kFineParts];
};

// What a block says to the others.
struct SampleExchange {
  SampleWeight weight;
  SampleKey best;
  uint32_t count, flag;
  SampleWeight segments[kSampleWarps];
};

struct alignas(16) ClusterShared {
  union {
    uint32_t coarse[kCoarseBins];
    FineBin fine[kFineBins];
    struct {
      SampleKey keys[kGatheredMax];
      SampleWeight weights[kGatheredMax];
    } gathered;
  };
  SampleKey list[kListMax];
  SampleKey picked[kPickedMax];
  // Two in turn: one is written while others may still read what was said before.
  SampleExchange exchange[2];
  SampleWeight warp_weights[kSampleWarps], warp_more[kSampleWarps];
  SampleKey warp_keys[kSampleWarps];
  uint32_t warp_counts[kSampleWarps], warp_flags[kSampleWarps];
  uint32_t list_count, picked_count;
  uint32_t segment_parts[kSampleWarps][kFineParts];  // of kept tokens of the list
  int32_t found[2];                                  // bins
  uint32_t found_count[2];
  SampleWeight found_weight;
  SampleKey found_key;
};

// The best of the tokens that one thread has seen, in ascending order of ids.
struct OwnBest {
  float value = -INFINITY;
  int32_t token = -1;
  bool nan = false;

  __device__ __forceinline__ void add(int32_t i, float v) {
    nan = nan || v != v;
    if (v > value) {
      value = v;
      token = i;
    }
  }
  __device__ SampleKey key() const { return token < 0 ? kWorstKey : key_of(value, token); }
};

// Of a thread.
struct CoarseBins {
  uint32_t counts[kCoarseEach];

  __device__ uint32_t total() const {
    uint32_t sum = 0;
#pragma unroll
    for (const uint32_t count : counts) sum += count;
    return sum;
  }
};

// Tokens by their place before, in or after a range of ranks.
struct RankRange {
  uint32_t low, high;

  __device__ __forceinline__ bool has(uint32_t rank) const { return rank >= low && rank <= high; }
};

class ClusterRow {
 public:
  // `values`: shared memory for slice(vocabulary) floats.
  __device__ ClusterRow(ClusterShared& shared, float* values, int32_t vocabulary)
      : shared(shared),
        values(values),
        rank(static_cast<int32_t>(cluster_rank())),
        size(vocabulary),
        first(min(rank * slice(vocabulary), vocabulary)),
        count(min(slice(vocabulary), vocabulary - first)) {}

  // Tokens of a block: the last may have fewer, or none.
  __host__ __device__ static int32_t slice(int32_t vocabulary) {
    constexpr int32_t kWhole = 8;  // of a 16-byte access of the narrowest type
    const int32_t even = (vocabulary + kSampleBlocks - 1) / kSampleBlocks;
    return (even + kWhole - 1) / kWhole * kWhole;
  }

  // Reads the block's slice of a row of device memory. Each thread's best of it.
  template <class T>
  __device__ OwnBest load(const T* logits) {
    constexpr int kWidth = kAccessBytes / static_cast<int>(sizeof(T)), kAhead = 4;
    const T* from = logits + first;
    const bool aligned = reinterpret_cast<uintptr_t>(from) % kAccessBytes == 0;
    const int32_t whole = aligned ? count / kWidth : 0;  // accesses
    const auto* accesses = reinterpret_cast<const uint4*>(from);
    const auto thread = static_cast<int32_t>(threadIdx.x);
    OwnBest own;
    const auto take = [&](int32_t access, const uint4& words) {
      const auto* elements = reinterpret_cast<const T*>(&words);
#pragma unroll
      for (int i = 0; i < kWidth; i += 4) {
        const float4 four = {to_float(elements[i]), to_float(elements[i + 1]),
                             to_float(elements[i + 2]), to_float(elements[i + 3])};
        const int32_t at = access * kWidth + i;
        *reinterpret_cast<float4*>(values + at) = four;
        own.add(first + at, four.x);
        own.add(first + at + 1, four.y);
        own.add(first + at + 2, four.z);
        own.add(first + at + 3, four.w);
      }
    };
    int32_t at = thread;
    for (; at + (kAhead - 1) * kSampleThreads < whole; at += kAhead * kSampleThreads) {
      uint4 held[kAhead];
#pragma unroll
      for (int i = 0; i < kAhead; ++i) {
        held[i] = accesses[at + i * kSampleThreads];
      }
#pragma unroll
      for (int i = 0; i < kAhead; ++i) take(at + i * kSampleThreads, held[i]);
    }
    for (; at < whole; at += kSampleThreads) take(at, accesses[at]);
    for (int32_t i = whole * kWidth + thread; i < count; i += kSampleThreads) {
      values[i] = to_float(from[i]);
      own.add(first + i, values[i]);
    }
    __syncthreads();
    return own;
  }

  // body(token, value) for the block's tokens, each thread its own in ascending order.
  template <class Body>
  __device__ __forceinline__ void for_each(const Body& body) const {
    const int32_t whole = count / 4;
#pragma unroll 2
    for (int32_t at = static_cast<int32_t>(threadIdx.x); at < whole; at += kSampleThreads) {
      give(4 * at, *reinterpret_cast<const float4*>(values + 4 * at), body);
    }
    const int32_t i = 4 * whole + static_cast<int32_t>(threadIdx.x);
    if (i < count) body(first + i, values[i]);
  }

  // The best key of the row; `nan`: whether any thread of the cluster says so.
  __device__ SampleKey best(SampleKey own, bool& nan) {
    own = warp_best(own);
    const bool warp_nan = __any_sync(0xffffffffu, nan);
    if (sample_lane() == 0) {
      shared.warp_keys[sample_warp()] = own;
      shared.warp_flags[sample_warp()] = warp_nan ? 1 : 0;
    }
    __syncthreads();
    if (sample_warp() == 0) {
      const bool there = sample_lane() < kSampleWarps;
      own = warp_best(there ? shared.warp_keys[sample_lane()] : kWorstKey);
      const bool any =
          __any_sync(0xffffffffu, there && shared.warp_flags[sample_lane() % kSampleWarps] != 0);
      if (sample_lane() == 0) {
        mine().best = own;
        mine().flag = any ? 1 : 0;
      }
    }
    const uint32_t said = say();
    const bool asks = sample_lane() < kSampleBlocks;
    const uint32_t at = asks ? address_in_block(said, sample_lane()) : 0;
    const SampleKey key =
        asks ? load_long_of_cluster(at + offsetof(SampleExchange, best)) : kWorstKey;
    const uint32_t flag = asks ? load_word_of_cluster(at + offsetof(SampleExchange, flag)) : 0;
    nan = __any_sync(0xffffffffu, flag != 0);
    return warp_best(key);
  }

  // The sum over the threads of the cluster.
  __device__ SampleWeight sum(SampleWeight weight) {
    weight = warp_total(weight);
    __syncthreads();  // who reads the sums of scan() has done so
    if (sample_lane() == 0) shared.warp_weights[sample_warp()] = weight;
    __syncthreads();
    if (sample_warp() == 0) {
      weight = warp_total(sample_lane() < kSampleWarps ? shared.warp_weights[sample_lane()] : 0);
      if (sample_lane() == 0) mine().weight = weight;
    }
    const uint32_t said = say();
    const uint32_t at = address_in_block(said, sample_lane() % kSampleBlocks);
    const SampleWeight of_block = load_long_of_cluster(at + offsetof(SampleExchange, weight));
    return warp_total(sample_lane() < kSampleBlocks ? of_block : 0);
  }

  // All blocks have read what they were to read.
  __device__ void settle() const {
    __syncwarp();
    cluster_sync();
  }

  // Empties the bins; what others read of them before has been read.
  __device__ void clear_bins() {
    settle();
    for (int i = static_cast<int>(threadIdx.x); i < kCoarseBins; i += kSampleThreads) {
      shared.coarse[i] = 0;
    }
    __syncthreads();
  }

  // Of all blocks: the kCoarseEach coarse bins of the thread; after a barrier of the cluster.
  __device__ CoarseBins coarse_of_thread() const {
    CoarseBins sums{};
    const uint32_t own = shared_address(&shared.coarse[kCoarseEach * threadIdx.x]);
#pragma unroll
    for (int block = 0; block < kSampleBlocks; ++block) {
      const uint32_t at = address_in_block(own, block);
#pragma unroll
      for (int i = 0; i < kCoarseEach; i += 4) {
        const uint4 more = load_words_of_cluster(at + i * sizeof(uint32_t));
        sums.counts[i] += more.x;
        sums.counts[i + 1] += more.y;
        sums.counts[i + 2] += more.z;
        sums.counts[i + 3] += more.w;
      }
    }
    return sums;
  }
  // The same: the fine bin of the thread, its count and weight.
  __device__ uint32_t fine_of_thread(SampleWeight& weight) const {
    static_assert(kFineParts == 3 && kFineBins == kSampleThreads);
    uint32_t tokens = 0;
    weight = 0;
    const uint32_t own = shared_address(&shared.fine[threadIdx.x]);
#pragma unroll
    for (int block = 0; block < kSampleBlocks; ++block) {
      const uint4 bin = load_words_of_cluster(address_in_block(own, block));
      tokens += bin.x;
      weight += (static_cast<SampleWeight>(bin.w) << 2 * kFinePartBits) +
                (static_cast<SampleWeight>(bin.z) << kFinePartBits) + bin.y;
    }
    return tokens;
  }

  __device__ __forceinline__ static void add_parts(uint32_t* parts, SampleWeight weight) {
#pragma unroll
    for (int part = 0; part < kFineParts; ++part) {
      const auto bits =
          static_cast<uint32_t>(weight >> part * kFinePartBits) & ((1u << kFinePartBits) - 1);
      if (bits != 0) atomicAdd(&parts[part], bits);
    }
  }
  __device__ __forceinline__ void add_to_fine(uint32_t bin, SampleWeight weight) {
    atomicAdd(&shared.fine[bin].count, 1u);
    add_parts(shared.fine[bin].parts, weight);
  }

  // Sums over the threads of the block before this one; a barrier in it.
  __device__ void scan(uint32_t& tokens, SampleWeight& weight, SampleWeight& more) {
    const uint32_t own_tokens = tokens;
    const SampleWeight own_weight = weight, own_more = more;
    tokens = warp_scan(tokens);
    weight = warp_scan(weight);
    more = warp_scan(more);
    __syncthreads();  // who reads the sums of the call before has done so
    if (sample_lane() == kWarpThreads - 1) {
      shared.warp_counts[sample_warp()] = tokens;
      shared.warp_weights[sample_warp()] = weight;
      shared.warp_more[sample_warp()] = more;
    }
    __syncthreads();
    const bool before = sample_lane() < sample_warp();
    tokens += warp_total(before ? shared.warp_counts[sample_lane()] : 0) - own_tokens;
    weight += warp_total(before ? shared.warp_weights[sample_lane()] : 0) - own_weight;
    more += warp_total(before ? shared.warp_more[sample_lane()] : 0) - own_more;
  }

  // Weighs what stands before the range and lists what stands in it (`kept_only`: but for tokens
  // of weight 0), each block its own in shared.list. `before`: the weight of all before it;
  // `before_of_segment`: of those in this warp's segment. False: too many in some block, there is
  // no list.
  __device__ bool split(const SampleScale& scale, bool kept_only, const RankRange& range,
                        SampleWeight& before, SampleWeight& before_of_segment) {
    if (threadIdx.x == 0) shared.list_count = 0;
    __syncthreads();
    WeightSum sum;
    for_each_of_warp([&](int32_t i, float value) {
      const uint32_t rank = sample_rank(value);
      const float share = scale.share(value);
      sum.add(rank < range.low ? share : 0.0f);
      if (!range.has(rank) || (kept_only && share * kWeightOne < 1.0f)) return;
      const uint32_t at = atomicAdd(&shared.list_count, 1u);
      if (at < kListMax) shared.list[at] = key_of(value, i);
    });
    before_of_segment = warp_total(sum.total());
    if (sample_lane() == 0) mine().segments[sample_warp()] = before_of_segment;
    __syncthreads();
    if (threadIdx.x == 0) mine().count = shared.list_count;
    const uint32_t said = say();
    const uint32_t at = segments_of_lane(said);
    before = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) before += load_long_of_cluster(at + i * sizeof(SampleWeight));
    before = warp_total(before);
    const uint32_t listed = load_word_of_cluster(
        address_in_block(said, sample_lane() % kSampleBlocks) + offsetof(SampleExchange, count));
    return !__any_sync(0xffffffffu, listed > kListMax);
  }

  // body(key) for the keys of the block's list.
  template <class Body>
  __device__ __forceinline__ void for_each_listed(const Body& body) const {
    const auto listed = static_cast<int>(shared.list_count);
    for (int i = static_cast<int>(threadIdx.x); i < listed; i += kSampleThreads) {
      body(shared.list[i]);
    }
  }

  // Collects keys, in any order, from all blocks into shared.gathered, with their weights:
  // each_key(pick) calls pick(key) for those of its thread. How many; -1: too many, and nothing is
  // there. Between two calls all blocks meet (clear_bins(), settle()).
  template <class EachKey>
  __device__ int gather(const SampleScale& scale, const EachKey& each_key) {
    if (threadIdx.x == 0) shared.picked_count = 0;
    __syncthreads();
    each_key([&](SampleKey key) {
      const uint32_t at = atomicAdd(&shared.picked_count, 1u);
      if (at < kPickedMax) shared.picked[at] = key;
    });
    __syncthreads();
    if (threadIdx.x == 0) mine().count = shared.picked_count;
    const uint32_t said = say();
    uint32_t counts[kSampleBlocks], total = 0;
    bool fits = true;
#pragma unroll
    for (int block = 0; block < kSampleBlocks; ++block) {
      counts[block] =
          load_word_of_cluster(address_in_block(said, block) + offsetof(SampleExchange, count));
      total += counts[block];
      fits = fits && counts[block] <= kPickedMax;
    }
    if (!fits || total > kGatheredMax) return -1;
    uint32_t before = 0;
    const uint32_t own = shared_address(&shared.picked[threadIdx.x % kPickedMax]);
#pragma unroll
    for (int block = 0; block < kSampleBlocks; ++block) {
      if (threadIdx.x < counts[block]) {
        const SampleKey key = load_long_of_cluster(address_in_block(own, block));
        shared.gathered.keys[before + threadIdx.x] = key;
        shared.gathered.weights[before + threadIdx.x] = scale.weight(value_of(key));
      }
      before += counts[block];
    }
    __syncthreads();
    return static_cast<int>(total);
  }

  // The weight of the list's keys up to `cut` in this warp's segment.
  __device__ SampleWeight listed_of_segment(const SampleScale& scale, SampleKey cut) {
    if (threadIdx.x < kSampleWarps * kFineParts) {
      shared.segment_parts[threadIdx.x / kFineParts][threadIdx.x % kFineParts] = 0;
    }
    __syncthreads();
    for_each_listed([&](SampleKey key) {
      if (key > cut) return;
      const int32_t segment = (token_of(key) - first) / segment_tokens();
      add_parts(shared.segment_parts[segment], scale.weight(value_of(key)));
    });
    __syncthreads();
    const uint32_t* parts = shared.segment_parts[sample_warp()];
    return (static_cast<SampleWeight>(parts[2]) << 2 * kFinePartBits) +
           (static_cast<SampleWeight>(parts[1]) << kFinePartBits) + parts[0];
  }

  // In order of ids, the token in which the running sum of weight_of(token, value) passes
  // target(total); -1 in all lanes but one of the cluster. `sum`: of weight_of over this warp's
  // segment.
  template <class Target, class WeightOf>
  __device__ int32_t locate(SampleWeight sum, const Target& target, const WeightOf& weight_of) {
    if (sample_lane() == 0) mine().segments[sample_warp()] = sum;
    const uint32_t said = say();
    const int segment = 4 * sample_lane();
    const uint32_t at = segments_of_lane(said);
    SampleWeight sums[4], own = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sums[i] = load_long_of_cluster(at + i * sizeof(SampleWeight));
      own += sums[i];
    }
    const SampleWeight reached = warp_scan(own);
    const SampleWeight left = target(__shfl_sync(0xffffffffu, reached, kWarpThreads - 1));
    SampleWeight before = reached - own;
    bool here = false;  // in this warp's segment
    SampleWeight start = 0;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      if (left >= before && left < before + sums[i] &&
          segment + i == rank * kSampleWarps + sample_warp()) {
        here = true;
        start = before;
      }
      before += sums[i];
    }
    const uint32_t owner = __ballot_sync(0xffffffffu, here);
    if (owner == 0) return -1;
    return scan_segment(left - __shfl_sync(0xffffffffu, start, __ffs(owner) - 1), weight_of);
  }

  // body(token, value) for the tokens of this warp's segment, which follow each other.
  template <class Body>
  __device__ __forceinline__ void for_each_of_warp(const Body& body) const {
    const int32_t from = segment_first(), to = segment_last();
    for (int32_t at = from + 4 * sample_lane(); at < to; at += 4 * kWarpThreads) {
      if (at + 4 <= to) {
        give(at, *reinterpret_cast<const float4*>(values + at), body);
      } else {
        for (int32_t i = at; i < to; ++i) body(first + i, values[i]);
      }
    }
  }

  ClusterShared& shared;
  float* const values;  // [count]
  const int32_t rank, size, first, count;

  __device__ SampleExchange& mine() const { return shared.exchange[said_ % 2]; }
  // What stands in mine() can be read by all: its address in every block.
  __device__ uint32_t say() {
    const uint32_t at = shared_address(&mine());
    __syncwarp();
    cluster_sync();
    ++said_;
    return at;
  }

 private:
  // Where four of the 128 segments' sums stand, in order of ids: this lane's.
  __device__ static uint32_t segments_of_lane(uint32_t said) {
    static_assert(kSampleBlocks * kSampleWarps == 4 * kWarpThreads);
    const int segment = 4 * sample_lane();
    return address_in_block(said, segment / kSampleWarps) + offsetof(SampleExchange, segments) +
           segment % kSampleWarps * sizeof(SampleWeight);
  }
  template <class Body>
  __device__ __forceinline__ void give(int32_t at, const float4& four, const Body& body) const {
    body(first + at, four.x);
    body(first + at + 1, four.y);
    body(first + at + 2, four.z);
    body(first + at + 3, four.w);
  }
  // The segments of a full block, so that they follow each other over the whole row.
  __device__ int32_t segment_tokens() const {
    constexpr int32_t kChunk = 4 * kWarpThreads;
    const int32_t even = (slice(size) + kSampleWarps - 1) / kSampleWarps;
    return (even + kChunk - 1) / kChunk * kChunk;
  }
  __device__ int32_t segment_first() const { return min(sample_warp() * segment_tokens(), count); }
  __device__ int32_t segment_last() const {
    return min((sample_warp() + 1) * segment_tokens(), count);
  }

  // The token of this warp's segment in which the running sum passes `left`; -1 in all other lanes.
  template <class WeightOf>
  __device__ int32_t scan_segment(SampleWeight left, const WeightOf& weight_of) const {
    const int32_t to = segment_last();
    for (int32_t from = segment_first(); from < to; from += 4 * kWarpThreads) {
      SampleWeight weights[4], own = 0;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        const int32_t at = from + 4 * sample_lane() + i;
        weights[i] = at < to ? weight_of(first + at, values[at]) : 0;
        own += weights[i];
      }
      SampleWeight reached = warp_scan(own);
      const SampleWeight all = __shfl_sync(0xffffffffu, reached, kWarpThreads - 1);
      if (left >= all) {
        left -= all;
        continue;
      }
      reached -= own;
      int32_t token = -1;
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        if (left >= reached && left < reached + weights[i])
          token = first + from + 4 * sample_lane() + i;
        reached += weights[i];
      }
      return token;
    }
    return -1;  // not reached: left is less than the segment's sum
  }

  uint32_t said_ = 0;
};

}  // namespace headrace::gpu
