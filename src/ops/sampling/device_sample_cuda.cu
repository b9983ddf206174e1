// From logits to tokens on CUDA: one block a row, no sort of the row.
//   logits [R, V] f32;  one DeviceSampleRow a row
// Tokens are ordered by (value descending, id ascending); a position in this order is a 64-bit key.
// min-p, top-k and top-p each keep a prefix of it, so what is kept is everything up to one key, the
// cut. A histogram over the distance from the largest value, with counts and weights, finds the bin
// that holds the cut; the bin's tokens are collected and sorted, and the cut is read off. A bin
// that holds more than can be collected (equal logits, a very high temperature) is searched by
// bisection of the key instead: up to 64 passes over the row. The draw is the inverse of the
// cumulative distribution in id order: sums of 32 segments, then a scan of one.
#include <array>

#include "ops/sampling/device_sample_row.cuh"

namespace headrace {
namespace {

using namespace sample_row;

// The last key that min-p, top-k and top-p keep.
__device__ Key cut_of(Shared& shared, const Values& values, const Scale& scale,
                      const DeviceSampleRow& row) {
  fill_histogram(shared, values, scale, /*kept_only=*/true);
  Weight weight = 0;
  uint32_t count = 0;
  for (int bin = static_cast<int>(threadIdx.x); bin < kBins; bin += kThreads) {
    weight += bin_weight(shared, bin);
    count += shared.bin_count[bin];
  }
  block_sums(shared, weight, count);
  Cut cut{~Key{0}, weight};
  if (row.top_k > 0 && static_cast<uint32_t>(row.top_k) < count) {
    cut = find_cut(shared, values, scale, true, {static_cast<uint32_t>(row.top_k), 0});
  }
  if (row.top_p >= 1.0f) return cut.key;
  __syncthreads();
  const Goal goal{1, top_p_goal(row.top_p, cut.weight)};
  return min(cut.key, find_cut(shared, values, scale, true, goal).key);
}

// The token at `random` of the distribution over the tokens up to the cut, in id order.
__device__ int32_t draw(Shared& shared, const Values& values, const Scale& scale, Key cut,
                        uint64_t random) {
  Weight sum = 0;
  for_each_token_of_segment(values, [&](int32_t i, float value) {
    sum += key_of(value, i) <= cut ? scale.weight(value) : 0;
  });
  sum = warp_sum(sum);
  __syncthreads();
  if (lane_index() == 0) shared.warp_weights[warp_index()] = sum;
  __syncthreads();
  return draw_of_segments(shared, values, scale, cut, random);
}

// The same where the tokens up to the cut are the first `count` collected keys, at most kThreads.
__device__ int32_t draw_of_list(Shared& shared, const Scale& scale, int count, uint64_t random) {
  // In id order: a key's halves change places.
  __syncthreads();
  const int i = static_cast<int>(threadIdx.x);
  if (i < count) shared.collected[i] = shared.collected[i] << 32 | shared.collected[i] >> 32;
  __syncthreads();
  sort_collected(shared, count);
  const Key turned = i < count ? shared.collected[i] : 0;
  const Weight weight = i < count ? scale.weight(value_of(turned << 32)) : 0;
  const Weight reached = block_scan(shared, weight);
  if (i == kThreads - 1) shared.carried = reached;
  __syncthreads();
  const Weight left = drawn_weight(random, shared.carried);
  if (weight > 0 && left < reached && left >= reached - weight) {
    shared.drawn = static_cast<int32_t>(turned >> 32);
  }
  __syncthreads();
  return shared.drawn;
}

// top-k, and top-p within it, where the k best are few: one pass. -1: not so.
__device__ int32_t choose_of_few(Shared& shared, const Values& values, const Scale& scale, Key own,
                                 const DeviceSampleRow& row) {
  if (row.top_k <= 0 || row.top_k > kThreads / 2) return -1;
  const int count =
      collect_best(shared, values, scale, own, row.top_k, /*kept_only=*/true, [](float) {});
  if (count < row.top_k) return -1;
  const Cut most = cut_of_list(shared, scale, count, {},
                               {.count = static_cast<uint32_t>(row.top_k), .weight = 0});
  __syncthreads();
  Key cut = most.key;
  if (row.top_p < 1.0f) {
    cut = cut_of_list(shared, scale, row.top_k, {}, {1, top_p_goal(row.top_p, most.weight)}).key;
    __syncthreads();
  }
  int kept = 0;  // keys up to the cut, by bisection
  for (int step = kThreads / 2; step > 0; step /= 2) {
    if (kept + step <= row.top_k && shared.collected[kept + step - 1] <= cut) kept += step;
  }
  return draw_of_list(shared, scale, kept, row.random);
}

__device__ int32_t choose(Shared& shared, const Values& values, Key best, Key own,
                          const DeviceSampleRow& row) {
  if (row.temperature <= 0.0f) return token_of(best);
  const Scale scale{gpu::SampleScale::of(row, value_of(best))};
  const int32_t chosen = choose_of_few(shared, values, scale, own, row);
  if (chosen >= 0) return chosen;
  const bool filtered = row.top_k > 0 || row.top_p < 1.0f;
  const Key cut = filtered ? cut_of(shared, values, scale, row) : ~Key{0};
  __syncthreads();
  return draw(shared, values, scale, cut, row.random);
}

// Collects the k best of the raw row, sorted, and says how many there are; by a histogram.
__device__ int collect_by_histogram(Shared& shared, const Values& raw, const Scale& plain, int k) {
  const Goal goal{static_cast<uint32_t>(min(k, raw.size)), 0};
  fill_histogram(shared, raw, plain, /*kept_only=*/false);
  find_bin(shared, goal);
  const int bin = shared.found_bin;
  if (shared.before_count + shared.bin_count[bin] <= kCollectedMax) {
    return collect(shared, raw, [&](float value, Key) { return plain.bin(value) <= bin; });
  }
  const Key cut = bisect(shared, raw, plain, false, goal).key;
  return collect(shared, raw, [&](float, Key key) { return key <= cut; });
}

// The k best of the raw row, best first, and the logarithm of the sum of exp(logit - largest) over
// the row.
__device__ double report_best(Shared& shared, const Values& raw, float largest, Key own, int k,
                              DeviceTopLogprob* tops) {
  const Scale plain{gpu::SampleScale(largest, 1.0f, 0.0f)};
  Weight weight = 0;
  uint32_t unused = 0;
  const auto add = [&](float value) { weight += plain.weight(value); };
  int count = collect_best(shared, raw, plain, own, k, /*kept_only=*/false, add);
  block_sums(shared, weight, unused);
  const double total = log_of(weight);
  if (k == 0) return total;
  __syncthreads();
  if (count < min(k, raw.size)) count = collect_by_histogram(shared, raw, plain, k);
  for (int i = static_cast<int>(threadIdx.x); i < k; i += kThreads) {
    const Key key = shared.collected[i];
    const bool there = i < count;
    tops[i] = {there ? token_of(key) : -1,
               there ? logprob_of(value_of(key), largest, total) : -kInfinity};
  }
  __syncthreads();
  return total;
}

// Puts penalised and biased values in the place of logits, and takes the tokens' counts away so
// that they are not penalised twice; `put_back` undoes both.
__device__ void apply_biases(DeviceLogitBias* biases, int32_t count, const Values& values,
                             float* logits, uint16_t* token_counts) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    DeviceLogitBias& entry = biases[i];
    const float value = values[entry.token];
    entry.saved_logit = logits[entry.token];
    logits[entry.token] = value + entry.bias;
    if (token_counts == nullptr) continue;
    entry.saved_count = token_counts[entry.token];
    token_counts[entry.token] = 0;
  }
}
__device__ void put_back(const DeviceLogitBias* biases, int32_t count, float* logits,
                         uint16_t* token_counts) {
  for (int i = static_cast<int>(threadIdx.x); i < count; i += kThreads) {
    const DeviceLogitBias& entry = biases[i];
    logits[entry.token] = entry.saved_logit;
    if (token_counts != nullptr) {
      token_counts[entry.token] = static_cast<uint16_t>(entry.saved_count);
    }
  }
}

__device__ float* logits_of(const gpu::SampleLaunch& launch) {
  return static_cast<float*>(launch.logits) + blockIdx.x * launch.stride;
}

__device__ bool is_changed(const gpu::SampleLaunch& launch, const DeviceSampleRow& row) {
  return launch.counts_of(row) != nullptr || row.bias_count > 0;
}

// The row's token by its parameters; -1 where nothing can be chosen.
__device__ int32_t sample_token(Shared& shared, const gpu::SampleLaunch& launch,
                                const DeviceSampleRow& row, const Values& raw, Key raw_best,
                                Key own) {
  uint16_t* token_counts = launch.counts_of(row);
  const Values values{
      .logits = raw.logits, .token_counts = token_counts, .row = &row, .size = raw.size};
  float* logits = logits_of(launch);
  DeviceLogitBias* biases = launch.biases + row.bias_first;
  Key best = raw_best;
  bool sane = true;
  if (is_changed(launch, row)) {
    __syncthreads();
    apply_biases(biases, row.bias_count, values, logits, token_counts);
    __syncthreads();
    best = best_key(shared, values, sane, own, [](float) {});
  }
  __syncthreads();
  const int32_t token = sane ? choose(shared, values, best, own, row) : -1;
  __syncthreads();
  put_back(biases, row.bias_count, logits, token_counts);
  __syncthreads();
  return token;
}

__global__ void __launch_bounds__(kThreads) sample_row(gpu::SampleLaunch launch) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  extern __shared__ __align__(16) std::byte dynamic[];
  Shared& shared = *reinterpret_cast<Shared*>(dynamic);
  const DeviceSampleRow row = launch.rows[blockIdx.x];
  const Values raw{.logits = logits_of(launch),
                   .token_counts = nullptr,
                   .row = nullptr,
                   .size = launch.vocabulary};
  bool sane;
  Key own;
  const Key best = best_key(shared, raw, sane, own, [](float) {});
  const float largest = value_of(best);
  double total = 0.0;
  if (sane && row.logprobs >= 0) {
    total = report_best(shared, raw, largest, own, row.logprobs, launch.tops + row.top_first);
  }
  int32_t token = -1;
  if (sane) {
    token = row.scored >= 0 ? row.scored : sample_token(shared, launch, row, raw, best, own);
  }
  if (threadIdx.x != 0) return;
  const bool reports = token >= 0 && row.logprobs >= 0;
  launch.finish(blockIdx.x, row, token,
                reports ? logprob_of(raw.logits[token], largest, total) : 0.0f);
}

void run(OpContext& context, const DeviceSampleArgs& args) {
  gpu::check_launch(gpu::launch_overlapped(sample_row,
                                           {.blocks = static_cast<unsigned>(args.logits.rows()),
                                            .threads = kThreads,
                                            .shared_bytes = sizeof(Shared)},
                                           gpu::stream_of(context), gpu::SampleLaunch::of(args)));
}

bool any(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.logits.dtype == DType::kF32 &&
         args.logits.columns() <= gpu::kSampleVocabularyMax;
}

// A row on eight multiprocessors is up to three times as fast, as long as there are enough of them
// (measured on an H200: at 64 rows the others are ahead).
constexpr int64_t kClusterRowsMax = 16;

bool few_rows(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  return sample_cluster_fits(traits, args) && args.logits.rows() <= kClusterRowsMax;
}
// Rows with a multiprocessor each.
bool a_multiprocessor_each(const DeviceTraits& traits, const DeviceSampleArgs& args) {
  return sample_block_fits(traits, args) && args.logits.rows() <= traits.sm_count;
}

constexpr std::array kKernels = {
    Kernel<DeviceSampleArgs>{"device_sample/cuda/cluster", few_rows, run_sample_cluster},
    Kernel<DeviceSampleArgs>{"device_sample/cuda/block_wide", a_multiprocessor_each,
                             run_sample_block_wide},
    Kernel<DeviceSampleArgs>{"device_sample/cuda/block", sample_block_fits, run_sample_block},
    Kernel<DeviceSampleArgs>{"device_sample/cuda/row", any, run},
};

}  // namespace

KernelTable<DeviceSampleArgs> device_sample_cuda_kernels() { return kKernels; }

}  // namespace headrace
