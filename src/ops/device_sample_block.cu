// From logits to tokens with one thread block a row, in two passes over it and without sorting it.
//   logits [R, V] f32 or bf16;  one DeviceSampleRow a row
// The first pass finds the best token, each thread its own best, and whether a value is NaN.
// - Temperature, min-p: the second pass weighs the row's segments for the draw.
// - top-k, log-probabilities: the k-th best of the threads' own best tokens is a value that k
// tokens
//   reach and hardly more do; the second pass lists them.
// - top-p, where the nucleus may be most of the row: the first pass counts tokens by 64ths of a nat
//   as well. Counts at their bins' middle weights, and the threads' own best tokens, which are the
//   few heavy ones, at their own, say where the cut is; the second pass adds up exactly what lies
//   above a narrow range around that place, by segments of the draw, and lists what lies in it.
// - Anything else (a range that missed twice, top-k of thousands, lists that overflow): exact
//   histograms over ranges of ranks, ten bits a pass, until what is left fits the list or has one
//   value.
#include "ops/device_sample_block.cuh"

namespace headrace {
namespace {

using namespace gpu;

constexpr float kWeightlessNats = 28.0f;  // 2^-40 of the best
constexpr int kWeighingBins = 2048;       // places of so many bins below the best's
static_assert(kWeighingBins >= kWeightlessNats * kPlacesPerNat);
constexpr int kNucleusTries = 3;

template <class Row>
constexpr int kFewMax = Row::kThreads / 2;  // top-k and log-probabilities from one more pass

// What lies before a place in the order.
struct Before {
  uint32_t count = 0;
  SampleWeight weight = 0;
};

struct Cut {
  SampleKey key = kWorstKey;  // the last that is kept
  SampleWeight weight = 0;    // of all that is kept

  // The same as a comparison of values: all of a row where there is no cut.
  __device__ float value() const { return key == kWorstKey ? -INFINITY : value_of(key); }
  __device__ int32_t token() const { return key == kWorstKey ? INT32_MAX : token_of(key); }
};

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
__device__ bool is_nucleus(const DeviceSampleRow& asked) {
  return asked.scored < 0 && asked.temperature > 0.0f && asked.top_k <= 0 && asked.top_p < 1.0f;
}

template <class Row>
__device__ FirstPass first_pass(Row& row, const DeviceSampleRow& asked) {
  if (is_nucleus(asked)) return find_best_and_count(row, Places::of(asked));
  return find_best(row, [](float) {});
}

// --- the draw ---

struct UpTo {
  float edge;
  int32_t edge_token;

  __device__ explicit UpTo(const Cut& cut) : edge(cut.value()), edge_token(cut.token()) {}
  __device__ __forceinline__ bool operator()(int32_t token, float value) const {
    return value > edge || (value == edge && token <= edge_token);
  }
};

// shared.segments: what the tokens up to the cut weigh.
template <class Row>
__device__ void weigh_segments(Row& row, const SampleScale& scale, const Cut& cut) {
  const UpTo kept(cut);
  row.clear_segments();
  WeightSum sum;  // of what is above the cut's value
  row.template for_each_access<PassOrder::kBackwards>(
      [&](int32_t, const auto& values) {
#pragma unroll
        for (int i = 0; i < Row::kWidth; ++i) {
          sum.add(values[i] > kept.edge ? scale.share(values[i]) : 0.0f);
        }
        return 0u;
      },
      [](int32_t) {}, [&](int32_t segment) { row.keep_segment(segment, sum); });
  __syncthreads();
  const auto add = [&](int32_t token, float value) {
    row.add_to_segment(token, scale.weight(value));
  };
  row.for_each_biased([&](int32_t token, float value) {
    if (value > kept.edge) add(token, value);
  });
  if (cut.key != kWorstKey) {
    row.for_each([&](int32_t token, float value) {
      if (value == kept.edge && token <= kept.edge_token) add(token, value);
    });
  }
}

// The token at `random` of the distribution over the tokens up to the cut, in order of ids.
// REQUIRES: shared.segments says what they weigh
template <class Row>
__device__ int32_t draw(Row& row, const SampleScale& scale, const Cut& cut, uint64_t random) {
  __syncthreads();
  const UpTo kept(cut);
  return row.locate([&](int32_t segment) { return row.shared.segments[segment]; },
                    [&](SampleWeight total) { return drawn_weight(random, total); },
                    [&](int32_t token, float value) -> SampleWeight {
                      return kept(token, value) ? scale.weight(value) : 0;
                    });
}

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

// How many tokens of weight `each` a goal needs after what lies before them.
__device__ SampleWeight ties_needed(const SampleGoal& goal, const Before& before,
                                    SampleWeight each) {
  SampleWeight needed = goal.count > before.count ? goal.count - before.count : 1;
  if (goal.weight > before.weight && each > 0) {
    needed = max(needed, (goal.weight - before.weight + each - 1) / each);
  }
  return needed;
}

// --- top-p ---

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
  const auto listed = [&](int32_t segment) { return SampleWeight{shared.segment_listed[segment]}; };
  SampleWeight own = row.of_own_segments(listed), all;
  SampleWeight left = needed - min(needed, row.scan(own, all) - own);
  row.of_own_segments([&](int32_t segment) -> SampleWeight {
    const SampleWeight taken = min(left, listed(segment));
    shared.segments[segment] += each * taken;
    left -= taken;
    return 0;
  });
  __syncthreads();
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

// --- the few best ---

// Lists, sorted, at least the k best tokens, or all where fewer than k threads have one:
// see(values) sees every access of the pass, `wanted(value)` says which tokens are listed at all.
// How many; more than kListMax: the list is of no use. REQUIRES: k <= kFewMax
template <class Row, class See, class Wanted>
__device__ int list_best(Row& row, SampleKey own, int k, const See& see, const Wanted& wanted) {
  auto& shared = row.shared;
  __syncthreads();
  shared.list[row.thread()] = own;
  sort_list(row.shared, Row::kThreads);
  const SampleKey last = shared.list[k - 1];
  const float from = last == kWorstKey ? -INFINITY : value_of(last);
  row.clear_list();
  row.template for_each_access<PassOrder::kBackwards>(
      [&](int32_t, const auto& values) {
        see(values);
        uint32_t picks = 0;
#pragma unroll
        for (int i = 0; i < Row::kWidth; ++i) {
          if (values[i] >= from) picks |= 1u << i;
        }
        return picks;
      },
      [&](int32_t token) {
        if (token >= row.size) return;
        const float value = row.value(token);
        if (wanted(value)) row.pick(key_of(value, token));
      },
      [](int32_t) {});
  row.for_each_biased([&](int32_t token, float value) {
    if (value >= from && wanted(value)) row.pick(key_of(value, token));
  });
  __syncthreads();
  const auto count = static_cast<int>(shared.list_count);
  if (count <= Row::kListMax) sort_list(row.shared, count);
  return count;
}

// The token at `random` of the distribution over the list's first `count` keys, at most kThreads,
// whose weights are list_weights and in all `total`.
template <class Row>
__device__ int32_t draw_of_list(Row& row, int count, SampleWeight total, uint64_t random) {
  auto& shared = row.shared;
  const SampleWeight left = drawn_weight(random, total);
  const int own = row.thread();
  if (own < count) {
    const int32_t token = token_of(shared.list[own]);
    SampleWeight before = 0;
    for (int i = 0; i < count; ++i) {
      before += token_of(shared.list[i]) < token ? shared.list_weights[i] : 0;
    }
    if (left >= before && left < before + shared.list_weights[own]) shared.found_token = token;
  }
  __syncthreads();
  return shared.found_token;
}

// top-k, and top-p within it, where the k best are few. -1: not so.
template <class Row>
__device__ int32_t choose_of_few(Row& row, const SampleScale& scale, SampleKey own,
                                 const DeviceSampleRow& asked) {
  if (asked.top_k <= 0 || asked.top_k > kFewMax<Row>) return -1;
  const int listed = list_best(
      row, own, asked.top_k, [](const auto&) {},
      [&](float value) { return scale.weight(value) > 0; });
  if (listed > Row::kListMax) return -1;
  auto& shared = row.shared;
  const int count = min(listed, asked.top_k);
  const int i = row.thread();
  const SampleWeight weight = i < count ? scale.weight(value_of(shared.list[i])) : 0;
  if (i < count) shared.list_weights[i] = weight;
  SampleWeight total;
  const SampleWeight reached = row.scan(weight, total);
  if (asked.top_p >= 1.0f) return draw_of_list(row, count, total, asked.random);
  const SampleWeight goal = top_p_goal(asked.top_p, total);
  if (i < count && reached >= goal && reached - weight < goal) {
    shared.found_count[0] = static_cast<uint32_t>(i) + 1;
    shared.found_weight = reached;
  }
  __syncthreads();
  return draw_of_list(row, static_cast<int>(shared.found_count[0]), shared.found_weight,
                      asked.random);
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

// --- a row ---

template <class Row>
__device__ int32_t choose(Row& row, const FirstPass& first, const DeviceSampleRow& asked) {
  if (asked.temperature <= 0.0f) return token_of(first.best);
  const SampleScale scale = SampleScale::of(asked, value_of(first.best));
  const int32_t chosen = choose_of_few(row, scale, first.own, asked);
  if (chosen >= 0) return chosen;
  Cut cut;
  if (!is_nucleus(asked) || !find_nucleus(row, scale, first.own, asked, cut)) {
    cut = asked.top_k > 0 || asked.top_p < 1.0f ? cut_of(row, scale, asked) : Cut{};
    weigh_segments(row, scale, cut);
  }
  return draw(row, scale, cut, asked.random);
}

// The k best of the row, best first, and the logarithm of the sum of exp(value - largest) over the
// row.
template <class Row>
__device__ double report_best(Row& row, const FirstPass& first, int k, DeviceTopLogprob* tops) {
  const float largest = value_of(first.best);
  const SampleScale plain{.largest = largest, .factor = 1.0f, .weight_min = 0.0f};
  WeightSum sum;
  const auto weigh = [&](const auto& values) {
#pragma unroll
    for (int i = 0; i < Row::kWidth; ++i) sum.add(plain.share(values[i]));
  };
  const int there = min(k, row.size);
  int count = Row::kListMax + 1;
  if (there > 0 && there <= kFewMax<Row>) {
    count = list_best(row, first.own, there, weigh, [](float) { return true; });
  } else {
    row.template for_each_access<PassOrder::kBackwards>(
        [&](int32_t, const auto& values) { weigh(values); });
  }
  SampleWeight weight = sum.total(), unused = 0;
  row.sum(weight, unused);
  const double total = log_of(weight);
  if (k == 0) return total;
  if (count > Row::kListMax) {
    const Cut cut = find_cut(row, plain, /*kept_only=*/false, {static_cast<uint32_t>(there), 0});
    row.clear_list();
    row.for_each([&](int32_t token, float value) {
      if (key_of(value, token) <= cut.key) row.pick(key_of(value, token));
    });
    sort_list(row.shared, there);
  }
  for (int i = row.thread(); i < k; i += Row::kThreads) {
    const SampleKey key = row.shared.list[min(i, there - 1)];
    tops[i] = i < there ? DeviceTopLogprob{token_of(key), logprob_of(value_of(key), largest, total)}
                        : DeviceTopLogprob{-1, -INFINITY};
  }
  __syncthreads();
  return total;
}

template <class Element, int kThreads>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) sample_block(SampleLaunch launch) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) std::byte dynamic[];
  const auto index = static_cast<int64_t>(blockIdx.x);
  const DeviceSampleRow& asked = launch.rows[index];
  auto* logits = static_cast<Element*>(launch.logits) + index * launch.stride;
  BlockRow<Element, kThreads> row(*reinterpret_cast<BlockShared<kThreads>*>(dynamic), logits,
                                  launch.vocabulary);
  const bool reports = asked.logprobs >= 0;
  const bool changed = asked.scored < 0 && (asked.penalises != 0 || asked.bias_count > 0);
  double total = 0.0;
  float largest = 0.0f;  // of the raw row
  FirstPass first;
  for (bool raw = reports || !changed;; raw = false) {
    if (!raw) row.change(launch.counts_of(asked), asked, launch.biases + asked.bias_first);
    first = first_pass(row, asked);
    if (raw && reports && first.sane) {
      largest = value_of(first.best);
      total = report_best(row, first, asked.logprobs, launch.tops + asked.top_first);
    }
    if (!raw || !changed || !first.sane) break;
  }
  int32_t token = -1;
  if (first.sane) token = asked.scored >= 0 ? asked.scored : choose(row, first, asked);
  row.put_back();
  if (row.thread() != 0) return;
  launch.finish(index, asked, token,
                token >= 0 && reports ? logprob_of(row.logit(token), largest, total) : 0.0f);
}

template <class Element, int kThreads>
void launch_rows(OpContext& context, const DeviceSampleArgs& args) {
  check_launch(launch_overlapped(sample_block<Element, kThreads>,
                                 {.blocks = static_cast<unsigned>(args.logits.rows()),
                                  .threads = kThreads,
                                  .shared_bytes = sizeof(BlockShared<kThreads>)},
                                 stream_of(context), SampleLaunch::of(args)));
}

}  // namespace

bool sample_block_fits(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  const DType dtype = args.logits.dtype;
  return traits.kind == DeviceKind::kCuda && (dtype == DType::kF32 || dtype == DType::kBF16) &&
         args.logits.columns() <= kBlockVocabularyMax;
}

// Two rows on a multiprocessor at a time.
void run_sample_block(OpContext& context, const DeviceSampleArgs& args) {
  if (args.logits.dtype == DType::kF32) return launch_rows<float, 512>(context, args);
  launch_rows<__nv_bfloat16, 512>(context, args);
}

// One row on a multiprocessor at a time, for fewer rows than there are multiprocessors.
void run_sample_block_wide(OpContext& context, const DeviceSampleArgs& args) {
  if (args.logits.dtype == DType::kF32) return launch_rows<float, 1024>(context, args);
  launch_rows<__nv_bfloat16, 1024>(context, args);
}

}  // namespace headrace
