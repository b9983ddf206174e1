// top-p where the nucleus may be most of a row, in two passes of one thread block.
//
// The pass that looks for the best token counts tokens by 64ths of a nat as well: one addition in
// shared memory a token. Counts at their bins' middle weights, and the threads' own best tokens,
// which are the few heavy ones, at their own, say where the cut is; the second pass adds up exactly
// what lies above a narrow range around that place, by segments of the draw, and lists what lies in
// it. Where the cut is not in the range: once more over whole bins, once more from the exact sums,
// then as any row.
#pragma once

#include "ops/sampling/device_sample_cut.cuh"

namespace headrace::block_row {

constexpr float kWeightlessNats = 28.0f;  // 2^-40 of the best
constexpr int kWeighingBins = 2048;       // places of so many bins below the best's
static_assert(kWeighingBins >= kWeightlessNats * kPlacesPerNat);
constexpr int kNucleusTries = 3;

// --- the first pass ---

struct FirstPass {
  SampleKey best;  // of the row: its largest value at the lowest id
  SampleKey own;   // of the tokens that this thread has seen
  bool sane;       // no NaN, and the best is finite
};

// `see(value)` sees every value of the pass.
template <class Row, class See>
__device__ FirstPass find_best(Row& row, const See& see) {
  float most = -INFINITY;
  int32_t most_first = -1;  // token of the access
  bool nan = false;
  row.template for_each_access<PassOrder::kForwards>([&](int32_t first, const auto& values) {
    float largest = values[0];
#pragma unroll
    for (int i = 1; i < Row::kWidth; ++i) largest = max_or_nan(largest, values[i]);
    nan = nan || largest != largest;
    if (largest > most) {
      most = largest;
      most_first = first;
    }
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) see(values[i]);
  });
  FirstPass pass{kWorstKey, kWorstKey, true};
  if (most_first >= 0) {
    int32_t token = most_first;
#pragma unroll
    for (int i = Row::kWidth - 1; i >= 0; --i) {
      if (most_first + i < row.size && row.value(most_first + i) == most) token = most_first + i;
    }
    pass.own = key_of(most, token);
  }
  row.for_each_biased([&](int32_t token, float value) {
    nan = nan || value != value;
    if (value > -INFINITY) pass.own = min(pass.own, key_of(value, token));
    see(value);
  });
  if (row.thread() == 0) row.shared.any_nan = false;
  pass.best = row.best(pass.own);
  if (nan) row.shared.any_nan = true;
  __syncthreads();
  pass.sane = !row.shared.any_nan && fabsf(value_of(pass.best)) < INFINITY;
  return pass;
}

// Places: values in bins of 1/64 nat, as the low bits of a float to which 1.5 * 2^23 is added.
struct Places {
  static constexpr float kBase = 0x1.8p23f;
  static constexpr float kMost = 0x1p21f;  // beyond it bins would not be told apart
  float per_value;

  __device__ static Places of(const DeviceSampleRow& asked) {
    return {SampleScale::of(asked, 0.0f).factor * kPlacesPerNat};
  }
  __device__ __forceinline__ float above_base(float value) const {
    return __fmaf_rd(value, per_value, kBase);
  }
  __device__ __forceinline__ static uint32_t bin(float above_base) {
    return __float_as_uint(above_base) % kPlaceBins;
  }
};

// find_best() that counts the row's tokens by places. A token further than 28 nats below the best
// of some of the row counts as if it were there: it weighs nothing, and might be so far away that
// it would count among the best.
template <class Row>
__device__ FirstPass find_best_and_count(Row& row, const Places& places) {
  auto& shared = row.shared;
  for (int bin = row.thread(); bin < kPlaceBins; bin += Row::kThreads) {
    shared.place_count[bin] = 0;
    shared.place_excess[bin] = 0.0f;
  }
  const auto some =
      static_cast<int32_t>(static_cast<int64_t>(row.thread()) * row.size / Row::kThreads);
  const float good = value_of(row.best(key_of(row.value(some), some)));
  const float least = places.above_base(good) - kWeightlessNats * kPlacesPerNat;
  return find_best(row, [&](float value) {
    const float place = fmaxf(places.above_base(value), least);
    atomicAdd(&shared.place_count[Places::bin(place)], 1u);
  });
}

// Rows of top-p alone, where the nucleus may be most of the row.
__device__ inline bool is_nucleus(const DeviceSampleRow& asked) {
  return asked.scored < 0 && asked.temperature > 0.0f && asked.top_k <= 0 && asked.top_p < 1.0f;
}

// --- the second ---

// Tokens at `above` or more are surely kept, those from `from` on may be; in values.
struct Edges {
  float above, from;
  SampleWeight estimate;  // of what lies above
};

// What a bin's tokens weigh: the count at the middle's weight, and what the threads' own best weigh
// beyond it. `below`: bins below the best's.
struct BinEstimate {
  SampleScale scale;
  Places places;
  float top_place;
  bool coarse;  // values are bf16

  __device__ int top() const { return __float2int_rd(top_place); }
  // The distance of a bin's values from each other, in places, where they are bf16.
  __device__ float spacing(int below) const {
    const float upper = fmaxf(fabsf(static_cast<float>(top() - below)),
                              fabsf(static_cast<float>(top() - below + 1)));
    const float value = upper / places.per_value;
    return __uint_as_float(__float_as_uint(value) & 0x7f800000u) * 0x1p-7f * places.per_value;
  }
  // The middle of the values that a bin can have.
  __device__ float middle_place(int below) const {
    const auto lower = static_cast<float>(top() - below);
    if (!coarse) return lower + 0.5f;
    const float step = spacing(below);
    const float first = ceilf(lower / step) * step;
    const float last = (ceilf((lower + 1.0f) / step) - 1.0f) * step;
    return last >= first ? (first + last) / 2 : lower + 0.5f;
  }
  __device__ float middle(int below) const {
    const float share = expf(fminf(middle_place(below) - top_place, 0.0f) / kPlacesPerNat);
    return share < scale.weight_min ? 0.0f : share;
  }
  __device__ uint32_t at(int below) const {
    return static_cast<uint32_t>(top() - below) % kPlaceBins;
  }
  template <class Shared>
  __device__ SampleWeight weight(const Shared& shared, int below) const {
    const float share = static_cast<float>(shared.place_count[at(below)]) * middle(below) +
                        shared.place_excess[at(below)];
    return static_cast<SampleWeight>(fmaxf(share, 0.0f) * kWeightOne);
  }
};

// Around the place where the estimate reaches `goal`; 0: top_p of the estimate of all. The slack is
// 2^-slack_shift of what lies on the smaller side of it, and what interpolation in a bin may be off
// by; `whole_bins`: rather the bins' edges, as values that are few and have many tokens each need.
template <class Row>
__device__ Edges find_edges(Row& row, const BinEstimate& bins, SampleWeight goal, float top_p,
                            int slack_shift, bool whole_bins) {
  auto& shared = row.shared;
  constexpr int kEach = kWeighingBins / Row::kThreads;
  const int first = row.thread() * kEach;
  SampleWeight weights[kEach], sum = 0, total;
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    weights[i] = bins.weight(shared, first + i);
    sum += weights[i];
  }
  if (row.thread() == 0) shared.found_place[0] = shared.found_place[1] = -INFINITY;
  SampleWeight before = row.scan(sum, total) - sum;
  if (goal == 0) goal = top_p_goal(top_p, total);
  goal = min(goal, max(total, SampleWeight{1}));
  const SampleWeight slack = min(goal, total - min(goal, total)) >> slack_shift;
  const SampleWeight goals[2] = {max(goal - slack, SampleWeight{1}), goal + slack};
#pragma unroll
  for (int i = 0; i < kEach; ++i) {
    const SampleWeight after = before + weights[i];
    const auto upper = static_cast<float>(bins.top() - (first + i) + 1);
    const auto count = static_cast<float>(shared.place_count[bins.at(first + i)]);
    const float step = bins.coarse ? bins.spacing(first + i) : 0.0f;
    const bool whole = whole_bins || step >= 0.5f;
    const float margin = fminf(4.0f * rsqrtf(fmaxf(count, 1.0f)), 1.0f) + step;
#pragma unroll
    for (int edge = 0; edge < 2; ++edge) {
      if (before >= goals[edge] || after < goals[edge]) continue;
      const float inside =
          static_cast<float>(goals[edge] - before) / static_cast<float>(weights[i]);
      shared.found_place[edge] = whole ? upper - static_cast<float>(edge)
                                       : upper - inside + (edge == 0 ? margin : -margin);
      if (edge == 0) shared.found_weight = whole ? before : goals[0];
    }
    before = after;
  }
  __syncthreads();
  constexpr float kRounding = 0x1p-6f;  // of places into values
  return {shared.found_place[0] / bins.places.per_value,
          (shared.found_place[1] - kRounding) / bins.places.per_value, shared.found_weight};
}

// What the row weighs, what of it lies above the edges, also in shared.segments, and how many
// tokens lie between them, listed, not sorted, and counted by segments in shared.segment_listed.
// `lowest` and `highest`: of those that this thread has listed.
struct Nucleus {
  SampleWeight total, above;
  uint32_t count;
  float lowest, highest;
};
template <class Row>
__device__ Nucleus weigh_nucleus(Row& row, const SampleScale& scale, const Edges& edges) {
  auto& shared = row.shared;
  row.clear_list();
  row.clear_segments();
  WeightSum all, kept;
  uint32_t listed = 0;
  Nucleus nucleus{0, 0, 0, INFINITY, -INFINITY};
  const auto list = [&](int32_t token, float value) -> uint32_t {
    if (scale.weight(value) == 0) return 0;
    row.pick(key_of(value, token));
    nucleus.lowest = fminf(nucleus.lowest, value);
    nucleus.highest = fmaxf(nucleus.highest, value);
    return 1;
  };
  row.template for_each_access<PassOrder::kBackwards>(
      [&](int32_t, const auto& values) {
        uint32_t picks = 0;
#pragma unroll
        for (int i = 0; i < Row::kWidth; ++i) {
          const bool above = values[i] >= edges.above;
          const WeightSum::Halves weight = WeightSum::halves(scale.share(values[i]));
          all.add(weight);
          kept.add(above ? weight : WeightSum::nothing());
          if (!above & (values[i] >= edges.from)) picks |= 1u << i;
        }
        return picks;
      },
      [&](int32_t token) { listed += list(token, row.value(token)); },
      [&](int32_t segment) {
        const SampleWeight weight = row.keep_segment(segment, kept);
        if (sample_lane() == 0) nucleus.above += weight;
        if (!__any_sync(0xffffffffu, listed != 0)) return;
        listed = __reduce_add_sync(0xffffffffu, listed);
        if (sample_lane() == 0) shared.segment_listed[segment] = listed;
        listed = 0;
      });
  nucleus.total = all.total();
  __syncthreads();
  row.for_each_biased([&](int32_t token, float value) {
    const SampleWeight weight = scale.weight(value);
    nucleus.total += weight;
    if (value >= edges.above) {
      nucleus.above += weight;
      row.add_to_segment(token, weight);
    } else if (value >= edges.from) {
      atomicAdd(&shared.segment_listed[row.segment_of(token)], list(token, value));
    }
  });
  row.sum(nucleus.total, nucleus.above);
  nucleus.count = shared.list_count;
  return nucleus;
}

// The cut where more tokens than the list holds lie between the edges, if they have one value, with
// what is kept of them in shared.segments. False: they have not, or it is not among them.
template <class Row>
__device__ bool cut_of_tied_nucleus(Row& row, const SampleScale& scale, const Nucleus& nucleus,
                                    SampleWeight goal, Cut& cut) {
  auto& shared = row.shared;
  const float tied = value_of(row.best(key_of(nucleus.highest, 0)));
  if (tied != -value_of(row.best(key_of(-nucleus.lowest, 0)))) return false;
  const SampleWeight each = scale.weight(tied);
  const SampleWeight needed = ties_needed({1, goal}, {0, nucleus.above}, each);
  if (needed > nucleus.count) return false;
  cut = {key_of(tied, token_of_tie(row, tied, needed - 1)), nucleus.above + needed * each};
  __syncthreads();
  keep_ties(row, needed, each);
  return true;
}

// The cut where it is among the listed tokens, with what is kept of them in shared.segments.
template <class Row>
__device__ bool cut_of_nucleus(Row& row, const SampleScale& scale, const Nucleus& nucleus,
                               SampleWeight goal, Cut& cut) {
  if (nucleus.above >= goal) return false;
  if (nucleus.count > Row::kListMax) return cut_of_tied_nucleus(row, scale, nucleus, goal, cut);
  const auto count = static_cast<int>(nucleus.count);
  sort_list(row.shared, count);
  if (!cut_of_list(row, scale, count, {0, nucleus.above}, {1, goal}, cut)) return false;
  for (int i = row.thread(); i < count; i += Row::kThreads) {
    const SampleKey key = row.shared.list[i];
    if (key <= cut.key) row.add_to_segment(token_of(key), scale.weight(value_of(key)));
  }
  __syncthreads();
  return true;
}

// The cut of a row whose tokens find_best_and_count() has counted, with what is kept in
// shared.segments. False: not found this way.
template <class Row>
__device__ bool find_nucleus(Row& row, const SampleScale& scale, SampleKey own,
                             const DeviceSampleRow& asked, Cut& cut) {
  const Places places = Places::of(asked);
  const BinEstimate bins{scale, places, scale.largest * places.per_value, Row::kCoarseValues};
  if (!(fabsf(bins.top_place) < Places::kMost)) return false;
  if (own != kWorstKey) {
    const int below = bins.top() - __float2int_rd(value_of(own) * places.per_value);
    if (below < kPlaceBins) {
      atomicAdd(&row.shared.place_excess[bins.at(below)],
                scale.share(value_of(own)) - bins.middle(below));
    }
  }
  __syncthreads();
  SampleWeight goal = 0;  // of the estimate
  for (int tried = 0; tried < kNucleusTries; ++tried) {
    const Edges edges =
        find_edges(row, bins, goal, asked.top_p, tried == 0 ? 9 : 7, /*whole_bins=*/tried > 0);
    const Nucleus nucleus = weigh_nucleus(row, scale, edges);
    const SampleWeight exact = top_p_goal(asked.top_p, nucleus.total);
    if (cut_of_nucleus(row, scale, nucleus, exact, cut)) return true;
    if (tried == 0) continue;  // whole bins may have it
    // As far from the edge by the estimate as it is.
    goal = nucleus.above < exact ? edges.estimate + (exact - nucleus.above)
                                 : edges.estimate - min(edges.estimate, nucleus.above - exact);
    goal = max(goal, SampleWeight{1});
  }
  return false;
}

}  // namespace headrace::block_row
