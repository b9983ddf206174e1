// What sampling by a block a row is made of (device_sample_cuda.cu): passes over a row, sums and
// scans over the block, the histogram and the search of a cut in it.
#pragma once

#include "ops/sampling/device_sample.cuh"

namespace headrace::sample_row {

using gpu::key_of, gpu::value_of, gpu::token_of, gpu::top_p_goal, gpu::drawn_weight;
using gpu::log_of, gpu::logprob_of;
using Weight = gpu::SampleWeight;
using Key = gpu::SampleKey;
using Goal = gpu::SampleGoal;
using Cut = gpu::SampleCut;
using Before = gpu::SampleBefore;

constexpr int kThreads = 1024;
constexpr int kWarps = kThreads / gpu::kWarpThreads;
constexpr int kBins = 2048;
constexpr float kBinsPerNat = 32.0f;  // 64 nats in all; the last bin takes what is further
constexpr int kCollectedMax = 2048;   // keys that are sorted in shared memory
constexpr float kInfinity = INFINITY;
static_assert(kCollectedMax >= kDeviceTopMax);

// Atomic sums of 64 bits are loops of compare and swap in shared memory, those of 32 bits are not:
// a weight, 2^40 at most, is added in four parts of 11 bits, which 2^21 tokens do not overflow.
constexpr int kParts = 4;
constexpr int kPartBits = 11;
static_assert(gpu::kSampleVocabularyMax <= 1 << (32 - kPartBits));

struct Shared {
  uint32_t bin_parts[kParts][kBins];
  uint32_t bin_count[kBins];
  Key collected[kCollectedMax];
  int32_t collected_count;
  Weight warp_weights[kWarps];
  uint32_t warp_counts[kWarps];
  Key warp_keys[kWarps];
  int32_t found_bin;  // of find_bin(), with what lies before it
  Weight before_weight;
  uint32_t before_count;
  Key found_key;  // of find_cut()
  Weight found_weight;
  Weight carried;  // of scans that take several rounds
  int32_t drawn;
};

__device__ inline void add_to_bin(Shared& shared, int bin, Weight weight) {
  atomicAdd(&shared.bin_count[bin], 1u);
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    const auto bits = static_cast<uint32_t>(weight >> part * kPartBits) & ((1u << kPartBits) - 1);
    if (bits != 0) atomicAdd(&shared.bin_parts[part][bin], bits);
  }
}
__device__ inline Weight bin_weight(const Shared& shared, int bin) {
  Weight weight = 0;
#pragma unroll
  for (int part = 0; part < kParts; ++part) {
    weight += static_cast<Weight>(shared.bin_parts[part][bin]) << part * kPartBits;
  }
  return weight;
}

// A row of values: the logits with or without the penalties of its slot.
struct Values {
  const float* logits;           // [V]
  const uint16_t* token_counts;  // [V], or null: no penalties
  const DeviceSampleRow* row;    // of the penalties
  int32_t size;

  __device__ float operator[](int32_t i) const { return penalised(i, logits[i]); }
  __device__ float penalised(int32_t i, float value) const {
    return token_counts == nullptr ? value : gpu::penalised(*row, token_counts[i], value);
  }
};

struct Scale : gpu::SampleScale {
  __device__ int bin(float value) const {
    const float position = distance(value) * kBinsPerNat;
    return position < static_cast<float>(kBins - 1) ? static_cast<int>(position) : kBins - 1;
  }
};

// body(token, value) for tokens [first, last) of the row, shared out among `threads` threads of
// which this is number `thread`; kAhead loads of 16 bytes at a time on their way. REQUIRES: first a
// multiple of 4
template <class Body>
__device__ __forceinline__ void for_each_token_in(const Values& values, int32_t first, int32_t last,
                                                  int32_t thread, int32_t threads,
                                                  const Body& body) {
  constexpr int kWidth = 4, kAhead = 4;
  const float* from = values.logits + first;
  const bool aligned = reinterpret_cast<uintptr_t>(from) % gpu::kAccessBytes == 0;
  const int32_t count = max(last - first, 0);
  const int32_t whole = aligned ? count / kWidth : 0;  // accesses
  const auto* accesses = reinterpret_cast<const float4*>(from);
  const auto give = [&](int32_t access, const float4& four) {
    const int32_t i = first + access * kWidth;
    body(i, values.penalised(i, four.x));
    body(i + 1, values.penalised(i + 1, four.y));
    body(i + 2, values.penalised(i + 2, four.z));
    body(i + 3, values.penalised(i + 3, four.w));
  };
  int32_t at = thread;
  for (; at + (kAhead - 1) * threads < whole; at += kAhead * threads) {
    float4 held[kAhead];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) held[i] = accesses[at + i * threads];
#pragma unroll
    for (int i = 0; i < kAhead; ++i) give(at + i * threads, held[i]);
  }
  for (; at < whole; at += threads) give(at, accesses[at]);
  for (int32_t i = first + whole * kWidth + thread; i < last; i += threads) body(i, values[i]);
}
template <class Body>
__device__ __forceinline__ void for_each_token(const Values& values, const Body& body) {
  for_each_token_in(values, 0, values.size, static_cast<int32_t>(threadIdx.x), kThreads, body);
}

__device__ inline int warp_index() { return static_cast<int>(threadIdx.x) / gpu::kWarpThreads; }
__device__ inline int lane_index() { return static_cast<int>(threadIdx.x) % gpu::kWarpThreads; }

__device__ inline Weight warp_sum(Weight weight) {
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    weight += __shfl_xor_sync(0xffffffffu, weight, distance);
  }
  return weight;
}

// The sums over the block, on every thread; a barrier before and after.
__device__ inline void block_sums(Shared& shared, Weight& weight, uint32_t& count) {
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    weight += __shfl_xor_sync(0xffffffffu, weight, distance);
    count += __shfl_xor_sync(0xffffffffu, count, distance);
  }
  __syncthreads();
  if (lane_index() == 0) {
    shared.warp_weights[warp_index()] = weight;
    shared.warp_counts[warp_index()] = count;
  }
  __syncthreads();
  weight = shared.warp_weights[lane_index()];
  count = shared.warp_counts[lane_index()];
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    weight += __shfl_xor_sync(0xffffffffu, weight, distance);
    count += __shfl_xor_sync(0xffffffffu, count, distance);
  }
}

// The sum over the threads up to and with this one; a barrier before and after.
__device__ inline Weight block_scan(Shared& shared, Weight value) {
  for (int distance = 1; distance < gpu::kWarpThreads; distance *= 2) {
    const Weight below = __shfl_up_sync(0xffffffffu, value, distance);
    if (lane_index() >= distance) value += below;
  }
  __syncthreads();
  if (lane_index() == gpu::kWarpThreads - 1) shared.warp_weights[warp_index()] = value;
  __syncthreads();
  Weight before = lane_index() < warp_index() ? shared.warp_weights[lane_index()] : 0;
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    before += __shfl_xor_sync(0xffffffffu, before, distance);
  }
  return value + before;
}

// The least of the threads' keys, on every thread; a barrier before and after.
__device__ inline Key block_least(Shared& shared, Key key) {
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    key = min(key, __shfl_xor_sync(0xffffffffu, key, distance));
  }
  __syncthreads();
  if (lane_index() == 0) shared.warp_keys[warp_index()] = key;
  __syncthreads();
  key = shared.warp_keys[lane_index()];
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    key = min(key, __shfl_xor_sync(0xffffffffu, key, distance));
  }
  return key;
}

// The best key of the row: its largest value at the lowest id. `sane` is false where a value is NaN
// or the largest is infinite. `own`: the best of the tokens that for_each_token() gives this
// thread. `visit(value)` sees every value of the pass.
template <class Visit>
__device__ Key best_key(Shared& shared, const Values& values, bool& sane, Key& own,
                        const Visit& visit) {
  own = ~Key{0};
  bool nan = false;
  for_each_token(values, [&](int32_t i, float value) {
    nan = nan || isnan(value);
    own = min(own, key_of(value, i));
    visit(value);
  });
  nan = __syncthreads_or(nan);
  const Key best = block_least(shared, own);
  sane = !nan && fabsf(value_of(best)) < kInfinity;
  return best;
}

__device__ inline void clear_histogram(Shared& shared) {
  __syncthreads();
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
    for (int part = 0; part < kParts; ++part) shared.bin_parts[part][bin] = 0;
    shared.bin_count[bin] = 0;
  }
  __syncthreads();
}

// Counts and weights of every bin. Of `kept_only`, tokens of weight 0 are in no bin.
__device__ inline void fill_histogram(Shared& shared, const Values& values, const Scale& scale,
                                      bool kept_only) {
  clear_histogram(shared);
  for_each_token(values, [&](int32_t i, float value) {
    const Weight weight = scale.weight(value);
    if (kept_only && weight == 0) return;
    add_to_bin(shared, scale.bin(value), weight);
  });
  __syncthreads();
}

// Finds the first bin with which the goal is reached, and what lies before it. False where the
// whole histogram does not reach it.
__device__ inline bool find_bin(Shared& shared, const Goal& goal) {
  constexpr int kEach = kBins / kThreads;
  Weight weight = 0;
  uint32_t count = 0;
  const int first = static_cast<int>(threadIdx.x) * kEach;
  for (int bin = first; bin < first + kEach; ++bin) {
    weight += bin_weight(shared, bin);
    count += shared.bin_count[bin];
  }
  if (threadIdx.x == 0) shared.found_bin = kBins;
  Weight weight_before = block_scan(shared, weight) - weight;
  auto count_before = static_cast<uint32_t>(block_scan(shared, count) - count);
  for (int bin = first; bin < first + kEach; ++bin) {
    const Weight weight_after = weight_before + bin_weight(shared, bin);
    const uint32_t count_after = count_before + shared.bin_count[bin];
    if (goal.reached(count_after, weight_after) && !goal.reached(count_before, weight_before)) {
      shared.found_bin = bin;
      shared.before_weight = weight_before;
      shared.before_count = count_before;
    }
    weight_before = weight_after;
    count_before = count_after;
  }
  __syncthreads();
  return shared.found_bin < kBins;
}

// Sorts `count` keys, ascending (Batcher's bitonic network).
__device__ inline void sort_collected(Shared& shared, int count) {
  int size = 2;
  while (size < count) size *= 2;
  for (int i = count + static_cast<int>(threadIdx.x); i < size; i += kThreads) {
    shared.collected[i] = ~Key{0};
  }
  __syncthreads();
  for (int span = 2; span <= size; span *= 2) {
    for (int step = span / 2; step > 0; step /= 2) {
      for (int i = static_cast<int>(threadIdx.x); i < size / 2; i += kThreads) {
        const int low = 2 * i - (i & (step - 1)), high = low + step;
        const Key a = shared.collected[low], b = shared.collected[high];
        if ((a > b) == ((low & span) == 0)) {
          shared.collected[low] = b;
          shared.collected[high] = a;
        }
      }
      __syncthreads();
    }
  }
}

// Collects, sorted, the keys of tokens for which `wanted(value, key)`, and says how many there are;
// of more than kCollectedMax the list is of no use.
template <class Wanted>
__device__ int collect(Shared& shared, const Values& values, const Wanted& wanted) {
  if (threadIdx.x == 0) shared.collected_count = 0;
  __syncthreads();
  for_each_token(values, [&](int32_t i, float value) {
    const Key key = key_of(value, i);
    if (!wanted(value, key)) return;
    const int at = atomicAdd(&shared.collected_count, 1);
    if (at < kCollectedMax) shared.collected[at] = key;
  });
  __syncthreads();
  const int count = shared.collected_count;
  if (count <= kCollectedMax) sort_collected(shared, count);
  return count;
}

// The shortest prefix of the order that reaches the goal, by bisection.
__device__ inline Cut bisect(Shared& shared, const Values& values, const Scale& scale,
                             bool kept_only, const Goal& goal) {
  Key low = 0, high = ~Key{0};  // the cut is in [low, high]
  Weight weight_at_high = 0;
  while (low < high) {
    const Key middle = low + (high - low) / 2;
    Weight weight = 0;
    uint32_t count = 0;
    for_each_token(values, [&](int32_t i, float value) {
      const Weight w = scale.weight(value);
      if ((kept_only && w == 0) || key_of(value, i) > middle) return;
      weight += w;
      ++count;
    });
    block_sums(shared, weight, count);
    if (goal.reached(count, weight)) {
      high = middle;
      weight_at_high = weight;
    } else {
      low = middle + 1;
    }
  }
  return {high, weight_at_high};
}

// The shortest prefix that reaches the goal and ends among the first `count` collected keys.
// REQUIRES: there is one
__device__ inline Cut cut_of_list(Shared& shared, const Scale& scale, int count,
                                  const Before& before, const Goal& goal) {
  Weight carried = before.weight;
  for (int first = 0; first < count; first += kThreads) {
    const int i = first + static_cast<int>(threadIdx.x);
    const Weight weight = i < count ? scale.weight(value_of(shared.collected[i])) : 0;
    const Weight reached = carried + block_scan(shared, weight);
    const uint32_t tokens = before.count + static_cast<uint32_t>(i) + 1;
    if (i < count && goal.reached(tokens, reached) && !goal.reached(tokens - 1, reached - weight)) {
      shared.found_key = shared.collected[i];
      shared.found_weight = reached;
    }
    if (threadIdx.x == kThreads - 1) shared.carried = reached;
    __syncthreads();
    carried = shared.carried;
    __syncthreads();
  }
  return {shared.found_key, shared.found_weight};
}

// Collects, sorted, at least the `k` best tokens in one pass over the row: at least k threads have
// a best of their own above some bin's lower edge, and few other tokens are. `visit(value)` sees
// every value of the pass. The number of keys; 0 where the row is not of that kind.
template <class Visit>
__device__ int collect_best(Shared& shared, const Values& values, const Scale& scale, Key own,
                            int k, bool kept_only, const Visit& visit) {
  clear_histogram(shared);
  const bool has = own != ~Key{0} && !(kept_only && scale.weight(value_of(own)) == 0);
  if (has) atomicAdd(&shared.bin_count[scale.bin(value_of(own))], 1u);
  __syncthreads();
  const bool found = find_bin(shared, {static_cast<uint32_t>(k), 0});
  const int bin = found ? shared.found_bin : -1;
  const int count = collect(shared, values, [&](float value, Key) {
    visit(value);
    return scale.bin(value) <= bin && !(kept_only && scale.weight(value) == 0);
  });
  return count <= kCollectedMax ? count : 0;
}

// The same from a histogram that reaches the goal.
__device__ inline Cut find_cut(Shared& shared, const Values& values, const Scale& scale,
                               bool kept_only, const Goal& goal) {
  find_bin(shared, goal);
  const int bin = shared.found_bin;
  if (shared.bin_count[bin] > kCollectedMax) return bisect(shared, values, scale, kept_only, goal);
  const Weight weight_before = shared.before_weight;
  const uint32_t count_before = shared.before_count;
  const int count = collect(shared, values, [&](float value, Key) {
    return scale.bin(value) == bin && !(kept_only && scale.weight(value) == 0);
  });
  return cut_of_list(shared, scale, count, {.count = count_before, .weight = weight_before}, goal);
}

// --- the draw: a row is kWarps segments of the same length, a warp each ---

__device__ inline int32_t segment_size(const Values& values) {
  return ((values.size + kWarps - 1) / kWarps + gpu::kWarpThreads - 1) / gpu::kWarpThreads *
         gpu::kWarpThreads;
}

// body(token, value) for the tokens of this warp's segment.
template <class Body>
__device__ __forceinline__ void for_each_token_of_segment(const Values& values, const Body& body) {
  const int32_t segment = segment_size(values);
  for_each_token_in(values, warp_index() * segment, min((warp_index() + 1) * segment, values.size),
                    lane_index(), gpu::kWarpThreads, body);
}

// The token at `random` of the distribution over the tokens up to the cut, in id order.
// REQUIRES: shared.warp_weights holds what each segment weighs up to the cut, seen by all threads
__device__ inline int32_t draw_of_segments(Shared& shared, const Values& values, const Scale& scale,
                                           Key cut, uint64_t random) {
  const int32_t segment = segment_size(values);
  Weight total = 0;
  for (int warp = 0; warp < kWarps; ++warp) total += shared.warp_weights[warp];
  Weight left = drawn_weight(random, total);
  int chosen = 0;
  while (chosen + 1 < kWarps && left >= shared.warp_weights[chosen]) {
    left -= shared.warp_weights[chosen++];
  }
  __syncthreads();
  const int32_t end = min((chosen + 1) * segment, values.size);
  for (int32_t first = chosen * segment; first < end; first += kThreads) {
    const int32_t i = first + static_cast<int32_t>(threadIdx.x);
    const float value = i < end ? values[i] : 0.0f;
    const Weight weight = i < end && key_of(value, i) <= cut ? scale.weight(value) : 0;
    const Weight reached = block_scan(shared, weight);
    if (weight > 0 && left < reached && left >= reached - weight) shared.drawn = i;
    if (threadIdx.x == kThreads - 1) shared.carried = reached;
    __syncthreads();
    if (left < shared.carried) return shared.drawn;
    left -= shared.carried;
    __syncthreads();
  }
  return -1;  // not reached: left < total
}

}  // namespace headrace::sample_row
