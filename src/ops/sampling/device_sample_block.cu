// From logits to tokens with one thread block a row, in two passes over it and without sorting it.
//   logits [R, V] f32 or bf16;  one DeviceSampleRow a row
// The first pass finds the best token, each thread its own best, and whether a value is NaN.
// - Temperature, min-p: the second pass weighs the row's segments for the draw.
// - top-k, log-probabilities: the k-th best of the threads' own best tokens is a value that k
//   tokens reach and hardly more do; the second pass lists them.
// - top-p: device_sample_nucleus.cuh; of bf16 also device_sample_values.cuh. Whatever these ways do
// not find: device_sample_cut.cuh.
#include "ops/sampling/device_sample_values.cuh"

namespace headrace {
namespace {

using namespace block_row;

template <class Row>
constexpr int kFewMax = Row::kThreads / 2;  // top-k and log-probabilities from one more pass

template <class Row>
__device__ FirstPass first_pass(Row& row, const DeviceSampleRow& asked) {
  if (is_nucleus(asked)) return find_best_and_count(row, Places::of(asked));
  return find_best(row, [](float) {});
}

// --- the draw ---

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
  const SampleScale plain(largest, 1.0f, 0.0f);
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

// The token of a row whose values are counted, -1 where its counts do not tell.
template <class Row>
__device__ int32_t choose_by_values(Row& row, const DeviceSampleRow& asked) {
  SampleScale scale(0.0f, 1.0f, 0.0f);
  Cut cut;
  return cut_by_values(row, asked, scale, cut) ? draw(row, scale, cut, asked.random) : -1;
}

template <class Element, int kThreads, bool kByValues>
__global__ void __launch_bounds__(kThreads, 1024 / kThreads) sample_block(SampleLaunch launch) {
  let_next_kernel_start();
  wait_for_earlier_kernels();
  extern __shared__ __align__(16) std::byte dynamic[];
  const auto index = static_cast<int64_t>(blockIdx.x);
  const DeviceSampleRow& asked = launch.rows[index];
  auto* logits = static_cast<Element*>(launch.logits) + index * launch.stride;
  BlockRow<Element, kThreads> row(*reinterpret_cast<BlockShared<kThreads>*>(dynamic), logits,
                                  launch.vocabulary);
  if constexpr (kByValues) {
    const int32_t drawn = draws_by_values(asked) ? choose_by_values(row, asked) : -1;
    if (drawn >= 0) {
      if (row.thread() == 0) launch.finish(index, asked, drawn, 0.0f);
      return;
    }
  }
  const bool reports = asked.logprobs >= 0;
  const bool changed = changes_values(asked);
  double total = 0.0;
  float largest = 0.0f;  // of the raw row
  FirstPass first;
  for (bool raw = reports || !changed;; raw = false) {
    if (!raw) {
      row.forbid(launch.mask_of(asked));
      row.change(launch.counts_of(asked), asked, launch.biases + asked.bias_first);
    }
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

template <class Element, int kThreads, bool kByValues>
void launch_rows(OpContext& context, const DeviceSampleArgs& args) {
  check_launch(context.stream,
               launch_overlapped(sample_block<Element, kThreads, kByValues>,
                                 {.blocks = static_cast<unsigned>(args.logits.rows()),
                                  .threads = kThreads,
                                  .shared_bytes = sizeof(BlockShared<kThreads>)},
                                 stream_of(context), SampleLaunch::of(args)));
}

}  // namespace

bool sample_block_fits(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  const DType dtype = args.logits.dtype;
  return traits.kind == DeviceKind::kCuda && (dtype == DType::kF32 || dtype == DType::kBF16) &&
         args.logits.columns() <= kSampleVocabularyMax;
}

// Two rows on a multiprocessor at a time: counting values is no faster there than places.
void run_sample_block(OpContext& context, const DeviceSampleArgs& args) {
  if (args.logits.dtype == DType::kF32) return launch_rows<float, 512, false>(context, args);
  launch_rows<__nv_bfloat16, 512, false>(context, args);
}

// One row on a multiprocessor at a time, for fewer rows than there are multiprocessors.
void run_sample_block_wide(OpContext& context, const DeviceSampleArgs& args) {
  if (args.logits.dtype == DType::kF32) return launch_rows<float, 1024, false>(context, args);
  launch_rows<__nv_bfloat16, 1024, true>(context, args);
}

}  // namespace headrace
