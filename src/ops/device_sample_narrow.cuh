// top-p where the nucleus may be most of a row, in two passes over it.
//
// The pass that looks for the best token counts tokens by 64ths of a nat as well: one addition in
// shared memory a token, where a histogram with weights takes five. Each bin's count at its middle
// weight, and the threads' own best tokens, which are the few heavy ones, at their own, say within
// some 1e-4 of the whole where the cut is. The second pass adds up exactly what lies above three
// bins around that place, segment by segment of the draw, and lists what lies in them; the cut is
// read off the list. Where it is not among them, the exact sums say how far away it is: once more,
// then as rows without this do.
#pragma once

#include "ops/device_sample_row.cuh"

namespace headrace::sample_row {

constexpr int kFineBins = 4096;  // 64 nats; what is further away counts among what is nearer
constexpr float kFineBinsPerNat = 64.0f;
constexpr float kWeightlessNats = 28.0f;  // 2^-40 of the best
constexpr int kNarrowings = 2;

struct NarrowingShared : Shared {
  static constexpr bool kNarrows = true;
  uint32_t fine_count[kFineBins];  // by a token's place modulo kFineBins
  float fine_excess[kFineBins];    // what the threads' own best weigh beyond the bin's middle
  Weight segment_above[kWarps];    // what the edges leave above, by segments
  uint32_t segment_parts[kParts][kWarps];
  Weight estimate_before;  // of the bin that narrow() found
};

// Places are values in units of bins, ascending with the value; both passes compute them alike.
struct FineScale {
  float per_value;

  __device__ static FineScale of(const gpu::SampleScale& scale) {
    return {scale.factor * kFineBinsPerNat};
  }
  __device__ __forceinline__ float place(float value) const { return value * per_value; }
  __device__ static __forceinline__ int bin(float place) { return __float2int_rd(place); }
};

// best_key(), counting. A token further than 28 nats below the best of a thousand of the row is not
// counted: it weighs nothing, and might be so far away that it would count among the best.
__device__ inline Key best_key_counted(NarrowingShared& shared, const Values& values,
                                       const DeviceSampleRow& row, bool& sane, Key& own) {
  const FineScale fine = FineScale::of(gpu::SampleScale::of(row, 0.0f));
  const auto thread = static_cast<int64_t>(threadIdx.x);
  for (int bin = static_cast<int>(threadIdx.x); bin < kFineBins; bin += kThreads) {
    shared.fine_count[bin] = 0;
    shared.fine_excess[bin] = 0.0f;
  }
  const auto some = static_cast<int32_t>(thread * values.size / kThreads);
  const Key good = block_least(shared, key_of(values[some], some));
  const float least = fine.place(value_of(good)) - kWeightlessNats * kFineBinsPerNat;
  return best_key(shared, values, sane, own, [&](float value) {
    const float place = fine.place(value);
    if (place >= least) atomicAdd(&shared.fine_count[fine.bin(place) & (kFineBins - 1)], 1u);
  });
}

// The share of the best token's weight that the middle of a bin has.
struct BinShares {
  Scale scale;
  FineScale fine;
  int top;  // bin of the best

  __device__ float middle(int bin) const {
    const float place = static_cast<float>(bin) + 0.5f;
    return scale.share(fminf(place / fine.per_value, scale.largest));
  }
  __device__ Weight estimate(const NarrowingShared& shared, int bin) const {
    const int at = bin & (kFineBins - 1);
    const float share =
        static_cast<float>(shared.fine_count[at]) * middle(bin) + shared.fine_excess[at];
    return static_cast<Weight>(fmaxf(share, 0.0f) * gpu::kWeightOne);
  }
};

// Tokens at `above` or higher are surely kept, those from `from` on may be; in places.
struct Edges {
  float above, from;
};

// Three bins around the one with which the estimate reaches `goal`; `goal` of no value: top_p of
// the estimate of all. Leaves in shared.estimate_before what the estimate says of all above them.
__device__ inline Edges narrow(NarrowingShared& shared, const BinShares& shares, Weight goal,
                               float top_p) {
  constexpr int kEach = kFineBins / kThreads;
  const int first = static_cast<int>(threadIdx.x) * kEach;  // bins below the best's
  Weight weights[kEach], sum = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    weights[i] = shares.estimate(shared, shares.top - first - i);
    sum += weights[i];
  }
  const Weight reached = block_scan(shared, sum);
  if (threadIdx.x == kThreads - 1) {
    shared.carried = reached;
    shared.found_bin = kFineBins - 1;
  }
  __syncthreads();
  if (goal == 0) goal = top_p_goal(top_p, shared.carried);
  Weight before = reached - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (before < goal && before + weights[i] >= goal) shared.found_bin = first + i;
    before += weights[i];
  }
  __syncthreads();
  const int bin_first = max(shared.found_bin - 1, 0), bin_last = shared.found_bin + 1;
  before = reached - sum;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    if (first + i == bin_first) shared.estimate_before = before;
    before += weights[i];
  }
  __syncthreads();
  return {bin_first == 0 ? INFINITY : static_cast<float>(shares.top - bin_first + 1),
          static_cast<float>(shares.top - bin_last)};
}

// The second pass: what the row weighs, and what of it lies above the edges, also in
// shared.segment_above; between the edges, `count` collected keys, not sorted.
struct Narrowed {
  Weight total, above;
  int count;
};
__device__ inline Narrowed weigh_and_collect(NarrowingShared& shared, const Values& values,
                                             const Scale& scale, const FineScale& fine,
                                             const Edges& edges) {
  if (threadIdx.x == 0) shared.collected_count = 0;
  __syncthreads();
  Weight total = 0, above = 0;
  for_each_token_of_segment(values, [&](int32_t i, float value) {
    const Weight weight = scale.weight(value);
    const float place = fine.place(value);
    total += weight;
    if (place >= edges.above) {
      above += weight;
    } else if (place >= edges.from && weight > 0) {
      const int at = atomicAdd(&shared.collected_count, 1);
      if (at < kCollectedMax) shared.collected[at] = key_of(value, i);
    }
  });
  const Weight of_segment = warp_sum(above);
  uint32_t unused = 0;
  block_sums(shared, total, unused);
  above = of_segment;
  if (lane_index() != 0) above = 0;
  if (lane_index() == 0) shared.segment_above[warp_index()] = of_segment;
  block_sums(shared, above, unused);
  return {total, above, shared.collected_count};
}

// What the collected keys weigh.
__device__ inline Weight weight_of_list(Shared& shared, const Scale& scale, int count) {
  Weight weight = 0;
  uint32_t unused = 0;
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    weight += scale.weight(value_of(shared.collected[i]));
  }
  block_sums(shared, weight, unused);
  return weight;
}

// shared.warp_weights: what each segment weighs up to the cut.
__device__ inline void weigh_segments(NarrowingShared& shared, const Values& values,
                                      const Scale& scale, int count, Key cut) {
  __syncthreads();
  if (threadIdx.x < kParts * kWarps) shared.segment_parts[warp_index()][lane_index()] = 0;
  __syncthreads();
  const int32_t segment = segment_size(values);
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const Key key = shared.collected[i];
    if (key > cut) continue;
    const Weight weight = scale.weight(value_of(key));
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      const auto bits = static_cast<uint32_t>(weight >> part * kPartBits) & ((1u << kPartBits) - 1);
      if (bits != 0) atomicAdd(&shared.segment_parts[part][token_of(key) / segment], bits);
    }
  }
  __syncthreads();
  if (threadIdx.x < kWarps) {
    Weight weight = shared.segment_above[threadIdx.x];
#pragma unroll
    for (int part = 0; part < kParts; ++part) {
      weight += static_cast<Weight>(shared.segment_parts[part][threadIdx.x]) << part * kPartBits;
    }
    shared.warp_weights[threadIdx.x] = weight;
  }
  __syncthreads();
}

// The token of a row whose tokens best_key_counted() has counted; -1: not found this way. `own`:
// this thread's best.
__device__ inline int32_t choose_narrowed(NarrowingShared& shared, const Values& values,
                                          const Scale& scale, Key own, const DeviceSampleRow& row) {
  const FineScale fine = FineScale::of(scale);
  const float top_place = fine.place(scale.largest);
  if (!(fabsf(top_place) < 0x1p22f)) return -1;  // places would not tell bins apart
  const BinShares shares{scale, fine, fine.bin(top_place)};
  if (own != ~Key{0}) {
    const float value = value_of(own);
    const int bin = fine.bin(fine.place(value));
    if (shares.top - bin < kFineBins) {
      atomicAdd(&shared.fine_excess[bin & (kFineBins - 1)],
                scale.share(value) - shares.middle(bin));
    }
  }
  __syncthreads();
  Weight goal = 0;  // of the estimate
  for (int round = 0; round < kNarrowings; ++round) {
    const Edges edges = narrow(shared, shares, goal, row.top_p);
    const Narrowed found = weigh_and_collect(shared, values, scale, fine, edges);
    const Weight exact = top_p_goal(row.top_p, found.total);
    if (found.count > kCollectedMax) return -1;
    const Weight listed = weight_of_list(shared, scale, found.count);
    if (found.above < exact && found.above + listed >= exact) {
      sort_collected(shared, found.count);
      const Key cut = cut_of_list(shared, scale, found.count,
                                  {.before_count = 0, .before_weight = found.above}, {1, exact})
                          .key;
      weigh_segments(shared, values, scale, found.count, cut);
      return draw_of_segments(shared, values, scale, cut, row.random);
    }
    // As far from the edge by the estimate as it is.
    const Weight at_edge = shared.estimate_before;
    __syncthreads();
    goal = found.above < exact ? at_edge + (exact - found.above)
                               : at_edge - min(at_edge, found.above - exact);
    goal = max(goal, Weight{1});
  }
  return -1;
}

}  // namespace headrace::sample_row
