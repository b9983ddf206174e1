// The cut of a row that one thread block reads: the last key that min-p, top-k and top-p keep. From
// a sorted list of the keys in doubt; where many tokens have one value, from counts by segments;
// and of any row by exact histograms over ranges of ranks, ten bits a pass, until what is left fits
// the list or has one value.
#pragma once

#include "ops/sampling/device_sample_block.cuh"

namespace headrace::block_row {

using namespace gpu;

using Before = SampleBefore;
using Cut = SampleCut;

struct UpTo {
  float edge;
  int32_t edge_token;

  __device__ explicit UpTo(const Cut& cut) : edge(cut.value()), edge_token(cut.token()) {}
  __device__ __forceinline__ bool operator()(int32_t token, float value) const {
    return value > edge || (value == edge && token <= edge_token);
  }
};

// --- the list ---

// The shortest prefix that reaches the goal and ends among the list's first `count` keys, sorted.
// False: none does.
template <class Row>
__device__ bool cut_of_list(Row& row, const SampleScale& scale, int count, const Before& before,
                            const SampleGoal& goal, Cut& cut) {
  auto& shared = row.shared;
  if (row.thread() == 0) shared.found_key = kWorstKey;
  SampleWeight carried = before.weight;
  for (int first = 0; first < count; first += Row::kThreads) {
    const int i = first + row.thread();
    const SampleWeight weight = i < count ? scale.weight(value_of(shared.list[i])) : 0;
    SampleWeight all;
    const SampleWeight reached = carried + row.scan(weight, all);
    const uint32_t tokens = before.count + static_cast<uint32_t>(i) + 1;
    if (i < count && goal.reached(tokens, reached) && !goal.reached(tokens - 1, reached - weight)) {
      shared.found_key = shared.list[i];
      shared.found_weight = reached;
    }
    carried += all;
  }
  __syncthreads();
  cut = {shared.found_key, shared.found_weight};
  __syncthreads();
  return cut.key != kWorstKey;
}

// Of tokens of one value, of which shared.segment_listed counts those of each segment, the id of
// number `index`.
template <class Row>
__device__ __noinline__ int32_t token_of_tie(Row row, float tied, SampleWeight index) {
  return row.locate(
      [&](int32_t segment) { return SampleWeight{row.shared.segment_listed[segment]}; },
      [&](SampleWeight) { return index; },
      [&](int32_t, float value) -> SampleWeight { return value == tied ? 1 : 0; });
}

// Adds the first `count` of those tokens, of weight `each`, to shared.segments.
template <class Row>
__device__ inline void keep_ties(Row& row, SampleWeight count, SampleWeight each) {
  auto& shared = row.shared;
  const auto listed = [&](int32_t segment) { return SampleWeight{shared.segment_listed[segment]}; };
  SampleWeight own = row.of_own_segments(listed), all;
  SampleWeight left = count - min(count, row.scan(own, all) - own);
  row.of_own_segments([&](int32_t segment) -> SampleWeight {
    const SampleWeight taken = min(left, listed(segment));
    shared.segments[segment] += each * taken;
    left -= taken;
    return 0;
  });
  __syncthreads();
}

// How many tokens of weight `each` a goal needs after what lies before them.
__device__ inline SampleWeight ties_needed(const SampleGoal& goal, const Before& before,
                                           SampleWeight each) {
  SampleWeight needed = goal.count > before.count ? goal.count - before.count : 1;
  if (goal.weight > before.weight && each > 0) {
    needed = max(needed, (goal.weight - before.weight + each - 1) / each);
  }
  return needed;
}

// --- the cut of any row ---

// Tokens of ranks from `low` to `high`.
struct RankRange {
  uint32_t low, high;

  __device__ __forceinline__ bool has(uint32_t rank) const { return rank >= low && rank <= high; }
};

// Of the bins over `range`, the one in which the goal is reached: how many tokens are in it.
// `range` becomes the bin's, `before` what stands before it. Of `kept_only`, tokens of weight 0 are
// in none.
template <class Row>
__device__ uint32_t narrow(Row& row, const SampleScale& scale, bool kept_only,
                           const SampleGoal& goal, RankRange& range, Before& before) {
  auto& shared = row.shared;
  static_assert(kRankBins == 1 << 10);
  __syncthreads();
  for (int bin = row.thread(); bin < kRankBins; bin += Row::kThreads) {
    shared.rank_count[bin] = 0;
#pragma unroll
    for (int part = 0; part < kBlockParts; ++part) shared.rank_parts[part][bin] = 0;
  }
  __syncthreads();
  const int shift = max(0, 32 - __clz(static_cast<int>(range.high - range.low)) - 10);
  row.for_each([&](int32_t, float value) {
    const uint32_t rank = sample_rank(value);
    if (!range.has(rank)) return;
    const SampleWeight weight = scale.weight(value);
    if (kept_only && weight == 0) return;
    const uint32_t bin = (rank - range.low) >> shift;
    atomicAdd(&shared.rank_count[bin], 1u);
#pragma unroll
    for (int part = 0; part < kBlockParts; ++part) {
      const uint32_t bits = Row::weight_part(weight, part);
      if (bits != 0) atomicAdd(&shared.rank_parts[part][bin], bits);
    }
  });
  __syncthreads();
  constexpr int kEach = kRankBins / Row::kThreads;
  SampleWeight weights[kEach], weight = 0, unused;
  uint32_t counts[kEach], count = 0;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const int bin = row.thread() * kEach + i;
    weights[i] = 0;
#pragma unroll
    for (int part = 0; part < kBlockParts; ++part) {
      weights[i] += static_cast<SampleWeight>(shared.rank_parts[part][bin])
                    << part * kBlockPartBits;
    }
    counts[i] = shared.rank_count[bin];
    weight += weights[i];
    count += counts[i];
  }
  Before at{before.count + static_cast<uint32_t>(row.scan(count, unused)) - count,
            before.weight + row.scan(weight, unused) - weight};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const Before after{at.count + counts[i], at.weight + weights[i]};
    if (goal.reached(after.count, after.weight) && !goal.reached(at.count, at.weight)) {
      shared.found_bin = static_cast<uint32_t>(row.thread() * kEach + i);
      shared.found_count[0] = at.count;
      shared.found_count[1] = counts[i];
      shared.found_weight = at.weight;
    }
    at = after;
  }
  __syncthreads();
  before = {shared.found_count[0], shared.found_weight};
  range.low += shared.found_bin << shift;
  range.high = min(range.high, range.low + ((1u << shift) - 1));
  return shared.found_count[1];
}

// The shortest prefix that reaches the goal. REQUIRES: the row reaches it
template <class Row>
__device__ __noinline__ Cut find_cut(Row row, const SampleScale& scale, bool kept_only,
                                     const SampleGoal& goal) {
  RankRange range{sample_rank(scale.largest), sample_rank(-INFINITY)};
  Before before;
  for (;;) {
    const uint32_t inside = narrow(row, scale, kept_only, goal, range, before);
    if (inside <= Row::kListMax) {
      row.clear_list();
      row.for_each([&](int32_t token, float value) {
        if (!range.has(sample_rank(value)) || (kept_only && scale.weight(value) == 0)) return;
        row.pick(key_of(value, token));
      });
      const auto count = static_cast<int>(inside);
      sort_list(row.shared, count);
      Cut cut;
      cut_of_list(row, scale, count, before, goal, cut);
      return cut;
    }
    if (range.low != range.high) continue;
    const float tied = value_of_rank(range.low);
    const SampleWeight each = scale.weight(tied);
    const SampleWeight needed = ties_needed(goal, before, each);
    row.clear_segments();
    row.for_each([&](int32_t token, float value) {
      if (value == tied) atomicAdd(&row.shared.segment_listed[row.segment_of(token)], 1u);
    });
    __syncthreads();
    return {key_of(tied, token_of_tie(row, tied, needed - 1)), before.weight + needed * each};
  }
}

// The last key that min-p, top-k and top-p keep.
template <class Row>
__device__ __noinline__ Cut cut_of(Row row, const SampleScale& scale,
                                   const DeviceSampleRow& asked) {
  SampleWeight weight = 0, count = 0;
  row.for_each([&](int32_t, float value) {
    const SampleWeight of_token = scale.weight(value);
    weight += of_token;
    count += of_token > 0 ? 1 : 0;
  });
  row.sum(weight, count);
  Cut cut{kWorstKey, weight};
  if (asked.top_k > 0 && static_cast<SampleWeight>(asked.top_k) < count) {
    cut = find_cut(row, scale, true, {static_cast<uint32_t>(asked.top_k), 0});
  }
  if (asked.top_p >= 1.0f) return cut;
  const Cut nucleus = find_cut(row, scale, true, {1, top_p_goal(asked.top_p, cut.weight)});
  return nucleus.key < cut.key ? nucleus : cut;
}

}  // namespace headrace::block_row
