// From logits to tokens with a row in the shared memory of eight thread blocks (sm_90): device
// memory is read once, and no row is sorted.
//   logits [R, V] f32 or bf16;  one DeviceSampleRow a row
// min-p, top-k and top-p each keep a prefix of the order of tokens, everything up to one key, the
// cut. It is found by counting: a histogram over the distance from the largest value (4,096 bins of
// 1/128 nat, counts alone) bounds the weights of prefixes within 0.8 %, which leaves few bins where
// the cut can be. One pass weighs what stands before them, by segments of the row, and lists what
// stands in them; a second histogram over the ranks of the list, with exact weights, leaves few
// tokens, among which every one compares itself with all others. Where many have one value, the
// lowest ids of them are kept, found like the draw: the inverse of the cumulative distribution in
// id order, for which the segments' weights and the list are enough.
#include "ops/sampling/device_sample_cluster.cuh"

namespace headrace {
namespace {

using namespace gpu;

constexpr int kFewMax = 256;  // top-k and log-probabilities from one pass
constexpr int kSharedMax = 227 << 10;
static_assert(kFewMax <= kPickedMax && kFewMax <= kGatheredMax);

__device__ float coarse_position(const SampleScale& scale, float value) {
  return scale.distance(value) * kCoarsePerNat;
}
__device__ int coarse_bin(float position) {
  return position < static_cast<float>(kCoarseBins - 1) ? static_cast<int>(position)
                                                        : kCoarseBins - 1;
}

using Before = SampleBefore;
using Cut = SampleCut;

// --- the few best ---

// The k best keys of the row, and few others, collected in one pass: k threads of the cluster have
// a best of their own above some bin's lower edge, and hardly more than k tokens are. How many; 0:
// the row is not of that kind. REQUIRES: k <= kFewMax
__device__ int collect_best(ClusterRow& row, const SampleScale& scale, SampleKey own, int k,
                            bool kept_only) {
  ClusterShared& shared = row.shared;
  row.clear_bins();
  if (own != kWorstKey && !(kept_only && scale.weight(value_of(own)) == 0)) {
    atomicAdd(&shared.coarse[coarse_bin(coarse_position(scale, value_of(own)))], 1u);
  }
  row.settle();
  const CoarseBins bins = row.coarse_of_thread();
  uint32_t reached = bins.total();
  SampleWeight unused = 0, unused_too = 0;
  row.scan(reached, unused, unused_too);
  if (threadIdx.x == 0) shared.found[0] = -1;
  __syncthreads();
  const auto goal = static_cast<uint32_t>(k);
#pragma unroll
  for (int i = 0; i < kCoarseEach; ++i) {
    const uint32_t before = reached;
    reached += bins.counts[i];
    if (before < goal && reached >= goal) {
      shared.found[0] = kCoarseEach * static_cast<int>(threadIdx.x) + i;
    }
  }
  __syncthreads();
  const int bin = shared.found[0];
  if (bin < 0) return 0;
  const float end = bin < kCoarseBins - 1 ? static_cast<float>(bin + 1) : INFINITY;
  const int count = row.gather(scale, [&](const auto& pick) {
    row.for_each([&](int32_t i, float value) {
      if (coarse_position(scale, value) >= end && end != INFINITY) return;
      if (kept_only && scale.weight(value) == 0) return;
      pick(key_of(value, i));
    });
  });
  return count < k ? 0 : count;
}

// The shortest prefix that reaches the goal and ends among the gathered keys. REQUIRES: there is
// one
__device__ Cut cut_of_gathered(ClusterShared& shared, int count, const Before& before,
                               const SampleGoal& goal) {
  const int own = static_cast<int>(threadIdx.x);
  if (own < count) {
    const SampleKey key = shared.gathered.keys[own];
    uint32_t tokens = before.count;
    SampleWeight weight = before.weight;
    for (int i = 0; i < count; ++i) {
      const bool counts = shared.gathered.keys[i] <= key;
      tokens += counts ? 1 : 0;
      weight += counts ? shared.gathered.weights[i] : 0;
    }
    if (goal.reached(tokens, weight) &&
        !goal.reached(tokens - 1, weight - shared.gathered.weights[own])) {
      shared.found_key = key;
      shared.found_weight = weight;
    }
  }
  __syncthreads();
  const Cut cut{shared.found_key, shared.found_weight};
  __syncthreads();
  return cut;
}

// --- the cut of any row ---

// Counts of all tokens, or of those that weigh something, by coarse bins of the whole row;
// `weight`: of them all.
__device__ CoarseBins count_coarse(ClusterRow& row, const SampleScale& scale, bool kept_only,
                                   SampleWeight& weight) {
  row.clear_bins();
  WeightSum sum;
  row.for_each([&](int32_t, float value) {
    const float share = scale.share(value);
    sum.add(share);
    if (kept_only && share * kWeightOne < 1.0f) return;
    atomicAdd(&row.shared.coarse[coarse_bin(coarse_position(scale, value))], 1u);
  });
  weight = row.sum(sum.total());  // and bins can be read
  return row.coarse_of_thread();
}

// Bins in which the goal may be reached, and how many tokens are before them.
struct CoarseRange {
  int first, last;
  uint32_t count_before;
};

// What the tokens of a coarse bin weigh at least and at most.
struct WeightBounds {
  SampleWeight least, most;

  __device__ static WeightBounds of(int bin, uint32_t count) {
    constexpr float kSlack = 0x1p-16f;  // what expf may be off by, and more
    const float near = expf(static_cast<float>(-bin) / kCoarsePerNat);
    const float far = expf(static_cast<float>(-bin - 1) / kCoarsePerNat);
    const auto high = static_cast<SampleWeight>(near * (1 + kSlack) * kWeightOne);
    const auto low = static_cast<SampleWeight>(far * (1 - kSlack) * kWeightOne);
    return {bin < kCoarseBins - 1 && low > 0 ? (low - 1) * count : 0, (high + 1) * count};
  }
};

__device__ CoarseRange find_range(ClusterRow& row, const CoarseBins& bins, const SampleGoal& goal) {
  ClusterShared& shared = row.shared;
  const int first = kCoarseEach * static_cast<int>(threadIdx.x);
  uint32_t tokens = 0;
  SampleWeight lower = 0, upper = 0;
#pragma unroll
  for (int i = 0; i < kCoarseEach; ++i) {
    const WeightBounds bounds = WeightBounds::of(first + i, bins.counts[i]);
    tokens += bins.counts[i];
    lower += bounds.least;
    upper += bounds.most;
  }
  row.scan(tokens, lower, upper);
  if (threadIdx.x == 0) {
    shared.found[0] = shared.found[1] = kCoarseBins - 1;
    shared.found_count[0] = 0;
  }
  __syncthreads();
#pragma unroll
  for (int i = 0; i < kCoarseEach; ++i) {
    const WeightBounds bounds = WeightBounds::of(first + i, bins.counts[i]);
    const bool may = goal.reached(tokens, upper), must = goal.reached(tokens, lower);
    const uint32_t count_before = tokens;
    tokens += bins.counts[i];
    upper += bounds.most;
    lower += bounds.least;
    if (!may && goal.reached(tokens, upper)) {
      shared.found[0] = first + i;
      shared.found_count[0] = count_before;
    }
    if (!must && goal.reached(tokens, lower)) shared.found[1] = first + i;
  }
  __syncthreads();
  const CoarseRange range{shared.found[0], shared.found[1], shared.found_count[0]};
  __syncthreads();
  return range;
}

// The lowest rank whose value is in the coarse bin or a later one: every lane of a warp asks for
// one of 32 places, seven times.
__device__ uint32_t rank_of_bin(const SampleScale& scale, int bin) {
  uint32_t first = sample_rank(scale.largest);
  uint32_t size = kWorstRank - first;  // the answer is in [first, first + size]
  while (size > 0) {
    const uint32_t step = (size + kWarpThreads - 1) / kWarpThreads;
    const uint32_t offset = static_cast<uint32_t>(sample_lane()) * step;
    const bool reached = offset >= size || coarse_position(scale, value_of_rank(first + offset)) >=
                                               static_cast<float>(bin);
    const uint32_t lanes = __ballot_sync(0xffffffffu, reached);
    const int lane = lanes == 0 ? kWarpThreads : __ffs(lanes) - 1;
    if (lane == 0) return first;
    // After lane - 1's place, at most at lane's.
    const uint32_t below = static_cast<uint32_t>(lane - 1) * step + 1;
    const uint32_t end = min(static_cast<uint32_t>(lane) * step, size);
    first += below;
    size = end - below;
  }
  return first;
}

// Of tokens that all have the value of `rank`, as many of the lowest ids as the goal needs.
__device__ Cut cut_of_ties(ClusterRow& row, const SampleScale& scale, uint32_t rank,
                           const Before& before, const SampleGoal& goal) {
  const float tied = value_of_rank(rank);
  const SampleWeight each = scale.weight(tied);
  SampleWeight needed = goal.count > before.count ? goal.count - before.count : 1;
  if (goal.weight > before.weight && each > 0) {
    needed = max(needed, (goal.weight - before.weight + each - 1) / each);
  }
  const auto is_tied = [&](int32_t, float value) -> SampleWeight { return value == tied ? 1 : 0; };
  SampleWeight own = 0;
  row.for_each_of_warp([&](int32_t i, float value) { own += is_tied(i, value); });
  const int32_t last = row.locate(
      warp_total(own), [&](SampleWeight) { return needed - 1; }, is_tied);
  bool unused = false;
  const SampleKey key = row.best(last < 0 ? kWorstKey : key_of(tied, last), unused);
  return {key, before.weight + needed * each};
}

// What finding a cut leaves for the draw.
struct Split {
  bool listed = false;                 // every token in doubt is in the blocks' lists
  SampleWeight before_of_segment = 0;  // of this warp's segment, before the list
};

// Of the fine bins over `range`, the one in which the goal is reached: how many tokens are in it.
// `range` becomes the bin's, `before` what stands before it.
__device__ uint32_t narrow(ClusterRow& row, const SampleScale& scale, bool kept_only, bool listed,
                           const SampleGoal& goal, RankRange& range, Before& before) {
  ClusterShared& shared = row.shared;
  static_assert(kFineBins == 1 << 9);
  const int shift = max(0, 32 - __clz(static_cast<int>(range.high - range.low)) - 9);
  const auto add = [&](float value) {
    const uint32_t rank = sample_rank(value);
    if (!range.has(rank)) return;
    const SampleWeight weight = scale.weight(value);
    if (kept_only && weight == 0) return;
    row.add_to_fine((rank - range.low) >> shift, weight);
  };
  if (listed) {
    row.for_each_listed([&](SampleKey key) { add(value_of(key)); });
  } else {
    row.for_each([&](int32_t, float value) { add(value); });
  }
  row.settle();
  SampleWeight weight, unused = 0;
  const uint32_t count = row.fine_of_thread(weight);
  uint32_t count_before = count;
  SampleWeight weight_before = weight;
  row.scan(count_before, weight_before, unused);
  count_before += before.count;
  weight_before += before.weight;
  if (goal.reached(count_before + count, weight_before + weight) &&
      !goal.reached(count_before, weight_before)) {
    shared.found[0] = static_cast<int>(threadIdx.x);
    shared.found_count[0] = count_before;
    shared.found_count[1] = count;
    shared.found_weight = weight_before;
  }
  __syncthreads();
  before = {shared.found_count[0], shared.found_weight};
  const uint32_t inside = shared.found_count[1];
  range.low += static_cast<uint32_t>(shared.found[0]) << shift;
  range.high = min(range.high, range.low + ((1u << shift) - 1));
  __syncthreads();
  return inside;
}

// The shortest prefix that reaches the goal. `bins`: of count_coarse(). REQUIRES: the row reaches
// it
__device__ Cut find_cut(ClusterRow& row, const SampleScale& scale, bool kept_only,
                        const CoarseBins& bins, const SampleGoal& goal, Split& split) {
  const CoarseRange coarse = find_range(row, bins, goal);
  RankRange range{rank_of_bin(scale, coarse.first), coarse.last == kCoarseBins - 1
                                                        ? kWorstRank
                                                        : rank_of_bin(scale, coarse.last + 1) - 1};
  Before before{coarse.count_before, 0};
  row.clear_bins();
  split.listed = row.split(scale, kept_only, range, before.weight, split.before_of_segment);
  for (;;) {
    const uint32_t inside = narrow(row, scale, kept_only, split.listed, goal, range, before);
    if (inside <= kPickedMax) {
      const int count = row.gather(scale, [&](const auto& pick) {
        const auto take = [&](float value, SampleKey key) {
          if (!range.has(sample_rank(value)) || (kept_only && scale.weight(value) == 0)) return;
          pick(key);
        };
        if (split.listed) {
          row.for_each_listed([&](SampleKey key) { take(value_of(key), key); });
        } else {
          row.for_each([&](int32_t i, float value) { take(value, key_of(value, i)); });
        }
      });
      return cut_of_gathered(row.shared, count, before, goal);
    }
    if (range.low == range.high) return cut_of_ties(row, scale, range.low, before, goal);
    row.clear_bins();
  }
}

// --- the draw ---

// A token, or -1, of a thread that knows it: in one thread of the cluster, or the same in all.
struct Drawn {
  int32_t token;
  bool mine;  // this thread reports it
};

__device__ bool reports_for_all(const ClusterRow& row) { return row.rank == 0 && threadIdx.x == 0; }

// The token at `random` of the distribution over the tokens up to the cut, in id order. `split`: of
// the cut.
__device__ Drawn draw(ClusterRow& row, const SampleScale& scale, const Cut& cut, const Split& split,
                      uint64_t random) {
  const float edge = cut.value();
  const int32_t edge_token = cut.token();
  const auto kept = [&](int32_t i, float value) {
    return value > edge || (value == edge && i <= edge_token);
  };
  SampleWeight of_segment = 0;
  if (split.listed) {
    of_segment = split.before_of_segment + row.listed_of_segment(scale, cut.key);
  } else {
    WeightSum sum;
    row.for_each_of_warp(
        [&](int32_t i, float value) { sum.add(kept(i, value) ? scale.share(value) : 0.0f); });
    of_segment = warp_total(sum.total());
  }
  const int32_t token = row.locate(
      of_segment, [&](SampleWeight total) { return drawn_weight(random, total); },
      [&](int32_t i, float value) -> SampleWeight {
        return kept(i, value) ? scale.weight(value) : 0;
      });
  return {token, token >= 0};
}

// The same where the tokens up to the cut are among the gathered keys.
__device__ Drawn draw_of_gathered(ClusterRow& row, int count, SampleKey cut, uint64_t random) {
  ClusterShared& shared = row.shared;
  const int own = static_cast<int>(threadIdx.x);
  if (own < count && shared.gathered.keys[own] <= cut) {
    const int32_t token = token_of(shared.gathered.keys[own]);
    SampleWeight total = 0, reached = 0;
    for (int i = 0; i < count; ++i) {
      const SampleKey key = shared.gathered.keys[i];
      const SampleWeight weight = key <= cut ? shared.gathered.weights[i] : 0;
      total += weight;
      reached += token_of(key) <= token ? weight : 0;
    }
    const SampleWeight left = drawn_weight(random, total);
    if (left < reached && left >= reached - shared.gathered.weights[own]) {
      shared.found_key = shared.gathered.keys[own];
    }
  }
  __syncthreads();
  return {token_of(shared.found_key), reports_for_all(row)};
}

// top-k, and top-p within it, where the k best are few. False: not so.
__device__ bool choose_of_few(ClusterRow& row, const SampleScale& scale, SampleKey own,
                              const DeviceSampleRow& asked, Drawn& drawn) {
  if (asked.top_k <= 0 || asked.top_k > kFewMax) return false;
  const int count = collect_best(row, scale, own, asked.top_k, /*kept_only=*/true);
  if (count == 0) return false;
  const Cut most = cut_of_gathered(row.shared, count, {},
                                   {.count = static_cast<uint32_t>(asked.top_k), .weight = 0});
  SampleKey cut = most.key;
  if (asked.top_p < 1.0f) {
    cut = cut_of_gathered(row.shared, count, {}, {1, top_p_goal(asked.top_p, most.weight)}).key;
  }
  drawn = draw_of_gathered(row, count, cut, asked.random);
  return true;
}

// The last key that min-p, top-k and top-p keep.
__device__ Cut cut_of(ClusterRow& row, const SampleScale& scale, const DeviceSampleRow& asked,
                      Split& split) {
  SampleWeight weight;
  const CoarseBins bins = count_coarse(row, scale, /*kept_only=*/true, weight);
  Cut cut{kWorstKey, weight};
  if (asked.top_k > 0) {
    // Every block has the bins of all.
    const SampleWeight kept = row.sum(bins.total()) / kSampleBlocks;
    const auto count = static_cast<uint32_t>(asked.top_k);
    if (count < kept) cut = find_cut(row, scale, true, bins, {count, 0}, split);
  }
  if (asked.top_p >= 1.0f) return cut;
  // Its goal is in what top-k keeps.
  return find_cut(row, scale, true, bins, {1, top_p_goal(asked.top_p, cut.weight)}, split);
}

__device__ Drawn choose(ClusterRow& row, SampleKey best, SampleKey own,
                        const DeviceSampleRow& asked) {
  if (asked.temperature <= 0.0f) return {token_of(best), reports_for_all(row)};
  const SampleScale scale = SampleScale::of(asked, value_of(best));
  Drawn drawn{-1, false};
  if (choose_of_few(row, scale, own, asked, drawn)) return drawn;
  const bool filtered = asked.top_k > 0 || asked.top_p < 1.0f;
  Split split;
  const Cut cut = filtered ? cut_of(row, scale, asked, split) : Cut{};
  return draw(row, scale, cut, split, asked.random);
}

// --- log-probabilities ---

// The gathered keys, best first, to tops[from...] up to `limit`.
__device__ void write_tops(const ClusterRow& row, int count, int from, int limit, float largest,
                           double total, DeviceTopLogprob* tops) {
  const auto& gathered = row.shared.gathered;
  const int own = static_cast<int>(threadIdx.x);
  if (row.rank != 0 || own >= count) return;
  const SampleKey key = gathered.keys[own];
  int place = from;
  for (int i = 0; i < count; ++i) place += gathered.keys[i] < key ? 1 : 0;
  if (place < limit) tops[place] = {token_of(key), logprob_of(value_of(key), largest, total)};
}

// The k best of the row, best first, and the logarithm of the sum of exp(value - largest) over the
// row.
__device__ double report_best(ClusterRow& row, float largest, SampleKey own, int k,
                              DeviceTopLogprob* tops) {
  const SampleScale plain(largest, 1.0f, 0.0f);
  WeightSum sum;
  row.for_each([&](int32_t, float value) { sum.add(plain.share(value)); });
  const double total = log_of(row.sum(sum.total()));
  const int there = min(k, row.size);
  if (row.rank == 0) {
    for (int i = there + static_cast<int>(threadIdx.x); i < k; i += kSampleThreads) {
      tops[i] = {-1, -INFINITY};
    }
  }
  if (k == 0) return total;
  if (there <= kFewMax) {
    const int count = collect_best(row, plain, own, there, /*kept_only=*/false);
    if (count > 0) {
      write_tops(row, count, 0, there, largest, total, tops);
      return total;
    }
  }
  SampleWeight unused;
  const CoarseBins bins = count_coarse(row, plain, /*kept_only=*/false, unused);
  SampleKey after = 0;  // no key: the best's is more
  for (int from = 0; from < there; from += kFewMax) {
    const int to = min(from + kFewMax, there);
    Split unused_split;
    const SampleKey cut =
        find_cut(row, plain, false, bins, {static_cast<uint32_t>(to), 0}, unused_split).key;
    row.settle();
    const int count = row.gather(plain, [&](const auto& pick) {
      row.for_each([&](int32_t i, float value) {
        const SampleKey key = key_of(value, i);
        if (key > after && key <= cut) pick(key);
      });
    });
    write_tops(row, count, from, to, largest, total, tops);
    after = cut;
  }
  return total;
}

// --- a row ---

// Penalties, biases and the mask in the place of logits, in shared memory alone; each thread's best
// of them.
__device__ OwnBest change_values(ClusterRow& row, const SampleLaunch& launch,
                                 const DeviceSampleRow& asked) {
  const uint16_t* counts = launch.counts_of(asked);
  if (counts != nullptr) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < row.count; i += kSampleThreads) {
      row.values[i] = penalised(asked, counts[row.first + i], row.values[i]);
    }
    __syncthreads();
  }
  for (int i = static_cast<int>(threadIdx.x); i < asked.bias_count; i += kSampleThreads) {
    const DeviceLogitBias& bias = launch.biases[asked.bias_first + i];
    const int32_t at = bias.token - row.first;
    if (at >= 0 && at < row.count) row.values[at] += bias.bias;
  }
  __syncthreads();
  if (const uint32_t* mask = launch.mask_of(asked); mask != nullptr) {
    for (int32_t i = static_cast<int32_t>(threadIdx.x); i < row.count; i += kSampleThreads) {
      if (!mask_allows(mask, row.first + i)) row.values[i] = -INFINITY;
    }
    __syncthreads();
  }
  OwnBest own;
  row.for_each([&](int32_t i, float value) { own.add(i, value); });
  return own;
}

template <class T>
__global__ void __launch_bounds__(kSampleThreads, 2) sample_cluster(SampleLaunch launch) {
  let_next_kernel_start();
  extern __shared__ __align__(16) std::byte dynamic[];
  ClusterShared& shared = *reinterpret_cast<ClusterShared*>(dynamic);
  ClusterRow row(shared, reinterpret_cast<float*>(dynamic + sizeof(ClusterShared)),
                 launch.vocabulary);
  const int64_t index = blockIdx.x / kSampleBlocks;
  wait_for_earlier_kernels();
  const DeviceSampleRow asked = launch.rows[index];
  const T* logits = static_cast<const T*>(launch.logits) + index * launch.stride;
  OwnBest own = row.load(logits);
  bool nan = own.nan;
  SampleKey best = row.best(own.key(), nan);
  const float largest = value_of(best);
  bool sane = !nan && fabsf(largest) < INFINITY;
  double total = 0.0;
  if (sane && asked.logprobs >= 0) {
    total = report_best(row, largest, own.key(), asked.logprobs, launch.tops + asked.top_first);
  }
  if (sane && changes_values(asked)) {
    row.settle();
    own = change_values(row, launch, asked);
    nan = own.nan;
    best = row.best(own.key(), nan);
    sane = !nan && fabsf(value_of(best)) < INFINITY;
  }
  Drawn drawn{-1, reports_for_all(row)};
  if (sane) {
    drawn = asked.scored >= 0 ? Drawn{asked.scored, reports_for_all(row)}
                              : choose(row, best, own.key(), asked);
  }
  if (drawn.mine) {
    const bool reports = drawn.token >= 0 && asked.logprobs >= 0;
    launch.finish(index, asked, drawn.token,
                  reports ? logprob_of(to_float(logits[drawn.token]), largest, total) : 0.0f);
  }
  row.settle();  // nobody leaves while others read
}

int64_t shared_bytes(int64_t vocabulary) {
  return static_cast<int64_t>(sizeof(ClusterShared)) +
         4 * ClusterRow::slice(static_cast<int32_t>(vocabulary));
}

}  // namespace

bool sample_cluster_fits(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  const DType dtype = args.logits.dtype;
  const int64_t vocabulary = args.logits.columns();
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         (dtype == DType::kF32 || dtype == DType::kBF16) && vocabulary <= kSampleVocabularyMax &&
         shared_bytes(vocabulary) <= kSharedMax &&
         ClusterRow::slice(static_cast<int32_t>(vocabulary)) <= kSampleSliceMax;
}

void run_sample_cluster(OpContext& context, const DeviceSampleArgs& args) {
  const auto kernel =
      args.logits.dtype == DType::kF32 ? sample_cluster<float> : sample_cluster<__nv_bfloat16>;
  check_launch(
      context.stream,
      launch_overlapped(kernel,
                        {.blocks = static_cast<unsigned>(args.logits.rows() * kSampleBlocks),
                         .threads = kSampleThreads,
                         .shared_bytes = static_cast<int>(shared_bytes(args.logits.columns())),
                         .cluster = kSampleBlocks},
                        stream_of(context), SampleLaunch::of(args)));
}

}  // namespace headrace
