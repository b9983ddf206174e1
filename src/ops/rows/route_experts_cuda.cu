// Routing on CUDA. A warp chooses for a row: its experts by one maximum after the other, sums and
// scores in double as on a CPU. Then a block an expert goes through all choices, in order, counts
// those of lower numbers and lists its own. Few rows are chosen for and listed by one block.
// Nothing here depends on which block is first: rows of an expert come in their order.
#include <algorithm>
#include <array>
#include <cmath>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/route_experts.h"

namespace headrace {
namespace {

constexpr int kWarps = 4;              // rows of a block that chooses
constexpr int kOneBlockRows = 16;      // rows that one block lists as well
constexpr int kListThreads = 256;      //
constexpr int kListItems = 4;          // choices of a thread at a time
constexpr int32_t kExpertsMax = 1024;  // 8 KB of scores a row

struct RouteArguments {
  RouterRule rule;
  gpu::RowsOf<const float> logits;
  const float* bias;
  int32_t rows;
  int32_t networks_of_row;
  // [T used], of rows in their order
  int32_t* chosen;
  float* chosen_weights;
  // The lists.
  int32_t *starts, *listed, *places;
  float* weights;
};

// --- a row's choice, by a warp ---

struct Best {
  double score;
  int32_t number;  // < 0: none

  // Of equal ones the first.
  __device__ __forceinline__ bool is_behind(const Best& other) const {
    if (other.number < 0) return false;
    if (number < 0) return true;
    return other.score > score || (other.score == score && other.number < number);
  }
};

__device__ __forceinline__ Best best_of_warp(Best best) {
#pragma unroll
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    const Best other{__shfl_xor_sync(0xffffffffu, best.score, distance),
                     __shfl_xor_sync(0xffffffffu, best.number, distance)};
    if (best.is_behind(other)) best = other;
  }
  return best;
}

__device__ __forceinline__ double sum_of_warp(double value) {
#pragma unroll
  for (int distance = gpu::kWarpThreads / 2; distance > 0; distance /= 2) {
    value += __shfl_xor_sync(0xffffffffu, value, distance);
  }
  return value;
}

__device__ __forceinline__ double sigmoid_of(double x) { return 1.0 / (1.0 + exp(-x)); }

class RowRouter {
 public:
  // `scores` [experts], `groups` [rule.groups]: of this warp.
  __device__ RowRouter(const RouteArguments& args, int32_t row, double* scores, double* groups)
      : rule_(args.rule),
        logits_(args.logits.row(row)),
        bias_(args.bias),
        scores_(scores),
        groups_(groups),
        lane_(static_cast<int>(threadIdx.x) % gpu::kWarpThreads) {}

  // Best first, [used] each.
  __device__ void route(int32_t* experts, float* weights) {
    const bool has_nan = fill_scores();
    if (rule_.groups_used < rule_.groups) leave_out_groups();
    float largest = 0.0f;
    double sum = softmax() ? 0.0 : 1e-20;
    for (int32_t i = 0; i < rule_.used; ++i) {
      const int32_t expert = take_best();
      if (i == 0) largest = logits_[expert];
      const double own = score(expert, largest);
      sum += own;
      if (lane_ == 0) experts[i] = expert;
    }
    if (!rule_.normalised) sum = sum_of_all(largest);
    __syncwarp();
    for (int32_t i = lane_; i < rule_.used; i += gpu::kWarpThreads) {
      const double weight = rule_.scale * score(experts[i], largest) / sum;
      weights[i] = has_nan ? nanf("") : static_cast<float>(weight);
    }
  }

  __device__ float shared_weight() const {
    if (rule_.shared != SharedExpert::kGated) return 1.0f;
    return static_cast<float>(sigmoid_of(logits_[rule_.experts]));
  }

 private:
  __device__ bool softmax() const { return rule_.scores == RouterScores::kSoftmax; }

  // What a choice is made by; no NaN: such a score is the least. True: there was one.
  __device__ bool fill_scores() {
    bool nan = false;
    for (int32_t e = lane_; e < rule_.experts; e += gpu::kWarpThreads) {
      double score = logits_[e];
      if (!softmax()) score = sigmoid_of(score);
      if (bias_ != nullptr) score += bias_[e];
      nan |= isnan(score);
      scores_[e] = isnan(score) ? -static_cast<double>(INFINITY) : score;
    }
    __syncwarp();
    return __any_sync(0xffffffffu, nan) != 0;
  }

  // NaN is what is taken, or not to be taken.
  __device__ void leave_out_groups() {
    const int32_t size = rule_.experts / rule_.groups;
    for (int32_t g = lane_; g < rule_.groups; g += gpu::kWarpThreads) {
      double first = -static_cast<double>(INFINITY), second = first;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) {
        const double score = scores_[e];
        if (score > first) {
          second = first;
          first = score;
        } else if (score > second) {
          second = score;
        }
      }
      groups_[g] = isinf(second) ? first : first + second;
    }
    __syncwarp();
    for (int32_t g = lane_; g < rule_.groups; g += gpu::kWarpThreads) {
      int32_t better = 0;
      for (int32_t other = 0; other < rule_.groups; ++other) {
        const bool ahead =
            groups_[other] > groups_[g] || (other < g && groups_[other] == groups_[g]);
        better += ahead ? 1 : 0;
      }
      if (better < rule_.groups_used) continue;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) scores_[e] = nan("");
    }
    __syncwarp();
  }

  __device__ int32_t take_best() {
    Best best{0.0, -1};
    for (int32_t e = lane_; e < rule_.experts; e += gpu::kWarpThreads) {
      const Best other{scores_[e], isnan(scores_[e]) ? -1 : e};
      if (best.is_behind(other)) best = other;
    }
    best = best_of_warp(best);
    if (best.number % gpu::kWarpThreads == lane_) scores_[best.number] = nan("");
    __syncwarp();
    return best.number;
  }

  // Of a softmax, over the sum of all scores.
  __device__ double score(int32_t expert, float largest) const {
    if (!softmax()) return sigmoid_of(logits_[expert]);
    return exp(static_cast<double>(logits_[expert]) - largest);
  }
  __device__ double sum_of_all(float largest) const {
    if (!softmax()) return 1.0;
    double sum = 0;
    for (int32_t e = lane_; e < rule_.experts; e += gpu::kWarpThreads) sum += score(e, largest);
    return sum_of_warp(sum);
  }

  const RouterRule& rule_;
  const float* const logits_;
  const float* const bias_;
  double* const scores_;
  double* const groups_;
  const int lane_;
};

// The place of the shared expert of a row.
__device__ void take_shared(const RouteArguments& args, int32_t row, float weight) {
  const int32_t at = args.rows * args.rule.used + row;
  args.listed[at] = row;
  args.weights[at] = weight;
  if (args.places == nullptr) return;
  args.places[row * args.networks_of_row + args.rule.used] = at;
}

__device__ void route_row(const RouteArguments& args, int32_t row, double* scratch) {
  RowRouter router(args, row, scratch, scratch + args.rule.experts);
  const int64_t first = int64_t{row} * args.rule.used;
  router.route(args.chosen + first, args.chosen_weights + first);
  if (args.rule.shared == SharedExpert::kNone) return;
  if (threadIdx.x % gpu::kWarpThreads == 0) take_shared(args, row, router.shared_weight());
}

__device__ __forceinline__ double* scratch_of_warp(const RouterRule& rule, double* all, int warp) {
  return all + warp * (rule.experts + rule.groups);
}

__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads)
    choose_experts(const __grid_constant__ RouteArguments args) {
  extern __shared__ double scores[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kWarps + warp;
  if (row < args.rows) route_row(args, row, scratch_of_warp(args.rule, scores, warp));
}

// --- the lists ---

// Choice `i`, which is expert `expert`'s, at `at` of the list.
__device__ __forceinline__ void list_choice(const RouteArguments& args, int32_t expert, int32_t i,
                                            int32_t at) {
  const int32_t used = args.rule.used, row = i / used;
  args.listed[at] = row;
  args.weights[at] = args.chosen_weights[i];
  if (args.places == nullptr) return;
  int32_t before = 0;
  for (int32_t j = row * used; j < (row + 1) * used; ++j) before += args.chosen[j] < expert ? 1 : 0;
  args.places[row * args.networks_of_row + before] = at;
}

// By any thread that has the first place of the last expert's.
__device__ __forceinline__ void end_lists(const RouteArguments& args) {
  const int32_t taken = args.rows * args.rule.used;
  args.starts[args.rule.experts] = taken;
  if (args.rule.shared != SharedExpert::kNone) {
    args.starts[args.rule.experts + 1] = taken + args.rows;
  }
}

// What a thread's choices are to an expert.
struct Counted {
  int32_t lower, own;
};

__device__ __forceinline__ Counted count_choices(const RouteArguments& args, int32_t expert,
                                                 int32_t first, int32_t last) {
  Counted counted{0, 0};
#pragma unroll
  for (int j = 0; j < kListItems; ++j) {
    if (first + j >= last) continue;
    const int32_t chosen = args.chosen[first + j];
    counted.lower += chosen < expert ? 1 : 0;
    counted.own += chosen == expert ? 1 : 0;
  }
  return counted;
}

// The sum of all threads before this one, and of all.
struct BeforeAndAll {
  int32_t before, all;
};
__device__ BeforeAndAll sum_before(int32_t value, int32_t (&warps)[kListThreads / 32]) {
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  int32_t sum = value;
#pragma unroll
  for (int distance = 1; distance < gpu::kWarpThreads; distance *= 2) {
    const int32_t other = __shfl_up_sync(0xffffffffu, sum, distance);
    if (lane >= distance) sum += other;
  }
  __syncthreads();  // the sums before have been read
  if (lane == gpu::kWarpThreads - 1) warps[warp] = sum;
  __syncthreads();
  BeforeAndAll result{sum - value, 0};
#pragma unroll
  for (int w = 0; w < kListThreads / gpu::kWarpThreads; ++w) {
    if (w < warp) result.before += warps[w];
    result.all += warps[w];
  }
  return result;
}

// A block an expert.
__global__ void __launch_bounds__(kListThreads)
    list_experts(const __grid_constant__ RouteArguments args) {
  __shared__ int32_t warps[kListThreads / gpu::kWarpThreads];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  constexpr int32_t kAtATime = kListThreads * kListItems;
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const int32_t taken = args.rows * args.rule.used;
  const int32_t own = static_cast<int32_t>(threadIdx.x) * kListItems;
  int32_t lower = 0;
  for (int32_t at = own; at < taken; at += kAtATime) {
    lower += count_choices(args, expert, at, taken).lower;
  }
  int32_t next = sum_before(lower, warps).all;  // of the list
  if (threadIdx.x == 0) {
    args.starts[expert] = next;
    if (expert + 1 == args.rule.experts) end_lists(args);
  }
  for (int32_t round = 0; round < taken; round += kAtATime) {
    const int32_t first = round + own;
    const int32_t count = count_choices(args, expert, first, taken).own;
    const BeforeAndAll sums = sum_before(count, warps);
    int32_t place = next + sums.before;
    for (int j = 0; count > 0 && j < kListItems && first + j < taken; ++j) {
      if (args.chosen[first + j] == expert) list_choice(args, expert, first + j, place++);
    }
    next += sums.all;
  }
}

// Both, of few rows: a warp a row, then a thread an expert.
__global__ void __launch_bounds__(kOneBlockRows* gpu::kWarpThreads)
    route_few(const __grid_constant__ RouteArguments args) {
  extern __shared__ double scores[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  if (warp < args.rows) route_row(args, warp, scratch_of_warp(args.rule, scores, warp));
  __syncthreads();  // choices are seen by the block's threads
  const int32_t taken = args.rows * args.rule.used;
  for (auto expert = static_cast<int32_t>(threadIdx.x); expert < args.rule.experts;
       expert += static_cast<int32_t>(blockDim.x)) {
    int32_t place = 0;
    for (int32_t i = 0; i < taken; ++i) place += args.chosen[i] < expert ? 1 : 0;
    args.starts[expert] = place;
    for (int32_t i = 0; i < taken; ++i) {
      if (args.chosen[i] == expert) list_choice(args, expert, i, place++);
    }
  }
  if (threadIdx.x == 0) end_lists(args);
}

RouteArguments arguments_of(OpContext& context, const RouteExpertsArgs& args) {
  const int64_t taken = args.logits.rows() * args.rule.used;
  return {.rule = args.rule,
          .logits = gpu::rows_of<float>(args.logits),
          .bias = args.bias,
          .rows = static_cast<int32_t>(args.logits.rows()),
          .networks_of_row = args.rule.networks_of_row(),
          .chosen = context.workspace.take_array<int32_t>(taken),
          .chosen_weights = context.workspace.take_array<float>(taken),
          .starts = args.out.starts.data(),
          .listed = args.out.rows.data(),
          .places = args.out.places.empty() ? nullptr : args.out.places.data(),
          .weights = args.out.weights.data()};
}

int scratch_bytes(const RouterRule& rule, int rows) {
  return rows * (rule.experts + rule.groups) * static_cast<int>(sizeof(double));
}

void run_few(OpContext& context, const RouteExpertsArgs& args) {
  Workspace::Mark mark(context.workspace);
  const auto rows = static_cast<int>(args.logits.rows());
  gpu::check_launch(gpu::launch_overlapped(route_few,
                                           {.blocks = 1,
                                            .threads = std::max(4, rows) * gpu::kWarpThreads,
                                            .shared_bytes = scratch_bytes(args.rule, rows)},
                                           gpu::stream_of(context), arguments_of(context, args)));
}

void run_many(OpContext& context, const RouteExpertsArgs& args) {
  Workspace::Mark mark(context.workspace);
  const RouteArguments arguments = arguments_of(context, args);
  gpu::check_launch(gpu::launch_overlapped(choose_experts,
                                           {.blocks = gpu::blocks_for(arguments.rows, kWarps),
                                            .threads = kWarps * gpu::kWarpThreads,
                                            .shared_bytes = scratch_bytes(args.rule, kWarps)},
                                           gpu::stream_of(context), arguments));
  gpu::launch(context, list_experts, static_cast<unsigned>(args.rule.experts), kListThreads,
              arguments);
}

bool many_fit(const DeviceTraits& traits, const RouteExpertsArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.rule.experts <= kExpertsMax &&
         args.logits.rows() * args.rule.networks_of_row() <= INT32_MAX / 2;
}
bool few_fit(const DeviceTraits& traits, const RouteExpertsArgs& args) {
  constexpr int kScratchMax = 128 << 10;
  return many_fit(traits, args) && args.logits.rows() <= kOneBlockRows &&
         scratch_bytes(args.rule, kOneBlockRows) <= kScratchMax;
}

constexpr std::array kKernels = {
    Kernel<RouteExpertsArgs>{"route_experts/cuda/one_block", few_fit, run_few},
    Kernel<RouteExpertsArgs>{"route_experts/cuda/reference", many_fit, run_many},
};

}  // namespace

KernelTable<RouteExpertsArgs> route_experts_cuda_kernels() { return kKernels; }

}  // namespace headrace
