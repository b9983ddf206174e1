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
constexpr int kListThreads = 512;      // of a block that lists
constexpr int kListItems = 8;          // choices of a thread at a time
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

// A score as a number that is greater where the score is; 0: taken, or not to be taken. NaN is the
// least score, both zeros are one.
__device__ __forceinline__ uint64_t key_of(double score) {
  if (isnan(score)) score = -static_cast<double>(INFINITY);
  const auto bits = static_cast<uint64_t>(__double_as_longlong(score + 0.0));
  return bits >> 63 != 0 ? ~bits : bits | uint64_t{1} << 63;
}
__device__ __forceinline__ double score_of(uint64_t key) {
  return __longlong_as_double(
      static_cast<long long>(key >> 63 != 0 ? key & ~(uint64_t{1} << 63) : ~key));
}

struct Candidate {
  uint64_t key;
  uint32_t number;
};
constexpr uint32_t kAllLanes = 0xffffffffu;

// Of all lanes' the one of the greatest key; of equal ones the lowest number, which every lane has
// as its own candidate's.
__device__ __forceinline__ uint32_t best_of_warp(const Candidate& own) {
  const auto high = static_cast<uint32_t>(own.key >> 32), low = static_cast<uint32_t>(own.key);
  const bool leads = high == __reduce_max_sync(kAllLanes, high);
  const uint32_t lowest = __reduce_max_sync(kAllLanes, leads ? low : 0u);
  return __reduce_min_sync(kAllLanes, leads && low == lowest ? own.number : kAllLanes);
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
  // `keys` [experts], `groups` [rule.groups]: of this warp.
  __device__ RowRouter(const RouteArguments& args, int32_t row, uint64_t* keys, double* groups)
      : rule_(args.rule),
        logits_(args.logits.row(row)),
        bias_(args.bias),
        keys_(keys),
        groups_(groups),
        lane_(static_cast<int>(threadIdx.x) % gpu::kWarpThreads) {}

  // Best first, [used] each.
  __device__ void route(int32_t* experts, float* weights) {
    const bool has_nan = fill_keys();
    if (rule_.groups_used < rule_.groups) leave_out_groups();
    Candidate candidate = own_best();
    float largest = 0.0f;
    double sum = softmax() ? 0.0 : 1e-20;
    for (int32_t i = 0; i < rule_.used; ++i) {
      const int32_t expert = take_best(candidate);
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

  // What a choice is made by. True: there was a NaN.
  __device__ bool fill_keys() {
    bool nan = false;
    for (int32_t e = lane_; e < rule_.experts; e += gpu::kWarpThreads) {
      double score = logits_[e];
      if (!softmax()) score = sigmoid_of(score);
      if (bias_ != nullptr) score += bias_[e];
      nan |= isnan(score);
      keys_[e] = key_of(score);
    }
    __syncwarp();
    return __any_sync(kAllLanes, nan) != 0;
  }

  __device__ void leave_out_groups() {
    const int32_t size = rule_.experts / rule_.groups;
    for (int32_t g = lane_; g < rule_.groups; g += gpu::kWarpThreads) {
      double first = -static_cast<double>(INFINITY), second = first;
      for (int32_t e = g * size; e < (g + 1) * size; ++e) {
        const double score = score_of(keys_[e]);
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
      for (int32_t e = g * size; e < (g + 1) * size; ++e) keys_[e] = 0;
    }
    __syncwarp();
  }

  // Of this lane's experts, every 32nd.
  __device__ Candidate own_best() const {
    Candidate best{0, kAllLanes};
    for (int32_t e = lane_; e < rule_.experts; e += gpu::kWarpThreads) {
      if (keys_[e] > best.key) best = {keys_[e], static_cast<uint32_t>(e)};
    }
    return best;
  }

  __device__ int32_t take_best(Candidate& own) {
    const uint32_t best = best_of_warp(own);
    if (best == own.number) {
      keys_[best] = 0;
      own = own_best();
    }
    return static_cast<int32_t>(best);
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
  uint64_t* const keys_;
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

__device__ void route_row(const RouteArguments& args, int32_t row, uint64_t* scratch) {
  RowRouter router(args, row, scratch, reinterpret_cast<double*>(scratch + args.rule.experts));
  const int64_t first = int64_t{row} * args.rule.used;
  router.route(args.chosen + first, args.chosen_weights + first);
  if (args.rule.shared == SharedExpert::kNone) return;
  if (threadIdx.x % gpu::kWarpThreads == 0) take_shared(args, row, router.shared_weight());
}

__device__ __forceinline__ uint64_t* scratch_of_warp(const RouterRule& rule, uint64_t* all,
                                                     int warp) {
  return all + warp * (rule.experts + rule.groups);
}

__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads)
    choose_experts(const __grid_constant__ RouteArguments args) {
  extern __shared__ uint64_t scratch[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kWarps + warp;
  if (row < args.rows) route_row(args, row, scratch_of_warp(args.rule, scratch, warp));
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

// What the warps of a block count: before a warp, and in all.
struct BeforeAndAll {
  int32_t before, all;
};
constexpr int kListWarps = kListThreads / gpu::kWarpThreads;
__device__ BeforeAndAll sum_of_warps(int32_t value, int warp, int32_t (&warps)[kListWarps]) {
  __syncthreads();  // the counts before have been read
  if (threadIdx.x % gpu::kWarpThreads == 0) warps[warp] = value;
  __syncthreads();
  BeforeAndAll result{0, 0};
#pragma unroll
  for (int w = 0; w < kListWarps; ++w) {
    if (w < warp) result.before += warps[w];
    result.all += warps[w];
  }
  return result;
}

// Choices of experts before this one.
__device__ int32_t count_lower(const RouteArguments& args, int32_t expert, int32_t taken) {
  int32_t lower = 0;
#pragma unroll 8
  for (auto i = static_cast<int32_t>(threadIdx.x); i < taken; i += kListThreads) {
    lower += args.chosen[i] < expert ? 1 : 0;
  }
  return static_cast<int32_t>(__reduce_add_sync(kAllLanes, static_cast<unsigned>(lower)));
}

// A block an expert; a warp has kListItems runs of 32 choices side by side.
__global__ void __launch_bounds__(kListThreads)
    list_experts(const __grid_constant__ RouteArguments args) {
  __shared__ int32_t warps[kListWarps];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  constexpr int32_t kOfWarp = kListItems * gpu::kWarpThreads, kAtATime = kListWarps * kOfWarp;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const auto expert = static_cast<int32_t>(blockIdx.x);
  const int32_t taken = args.rows * args.rule.used;
  int32_t next = sum_of_warps(count_lower(args, expert, taken), warp, warps).all;  // of the list
  if (threadIdx.x == 0) {
    args.starts[expert] = next;
    if (expert + 1 == args.rule.experts) end_lists(args);
  }
  for (int32_t round = 0; round < taken; round += kAtATime) {
    const int32_t first = round + warp * kOfWarp + lane;
    unsigned own[kListItems];  // which lanes' choices are the expert's
    int32_t count = 0;
#pragma unroll
    for (int j = 0; j < kListItems; ++j) {
      const int32_t i = first + j * gpu::kWarpThreads;
      own[j] = __ballot_sync(kAllLanes, i < taken && args.chosen[i] == expert);
      count += __popc(own[j]);
    }
    const BeforeAndAll sums = sum_of_warps(count, warp, warps);
    int32_t place = next + sums.before;
#pragma unroll
    for (int j = 0; j < kListItems; ++j) {
      if ((own[j] >> lane & 1) != 0) {
        list_choice(args, expert, first + j * gpu::kWarpThreads,
                    place + __popc(own[j] & ((1u << lane) - 1)));
      }
      place += __popc(own[j]);
    }
    next += sums.all;
  }
}

// Both, of few rows: a warp a row, then a thread an expert.
__global__ void __launch_bounds__(kOneBlockRows* gpu::kWarpThreads)
    route_few(const __grid_constant__ RouteArguments args) {
  extern __shared__ uint64_t scratch[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  if (warp < args.rows) route_row(args, warp, scratch_of_warp(args.rule, scratch, warp));
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
  return rows * (rule.experts + rule.groups) * static_cast<int>(sizeof(uint64_t));
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
