// Routing on CUDA. A warp chooses for a row: its experts by one maximum after the other, sums and
// scores in double as on a CPU. Then a block an expert goes through all choices, in order, counts
// those of lower numbers and lists its own. Few rows are chosen for and listed by one block.
// Nothing here depends on which block is first: rows of an expert come in their order.
#include <algorithm>
#include <array>

#include "ops/rows/route_row.cuh"

namespace headrace {
namespace {

constexpr int kWarps = 4;         // rows of a block that chooses
constexpr int kOneBlockRows = 2;  // rows that one block lists as fast as many do
constexpr int kOneBlockThreads = 128;
constexpr int kListThreads = 512;  // of a block that lists
constexpr int kListItems = 8;      // choices of a thread at a time

using gpu::kAllLanes;
using gpu::RouteArguments;

__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads)
    choose_experts(const __grid_constant__ RouteArguments args) {
  extern __shared__ uint64_t scratch[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int32_t row = static_cast<int32_t>(blockIdx.x) * kWarps + warp;
  if (row < args.rows) gpu::route_row(args, row, gpu::scratch_of_warp(args.rule, scratch, warp));
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
    if (expert + 1 == args.rule.experts) gpu::end_lists(args);
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
        gpu::list_choice(args, expert, first + j * gpu::kWarpThreads,
                         place + __popc(own[j] & ((1u << lane) - 1)));
      }
      place += __popc(own[j]);
    }
    next += sums.all;
  }
}

// Both, of few rows.
__global__ void __launch_bounds__(kOneBlockThreads)
    route_few(const __grid_constant__ RouteArguments args) {
  extern __shared__ uint64_t scratch[];
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  gpu::route_in_block(args, scratch);
}

void run_few(OpContext& context, const RouteExpertsArgs& args) {
  Workspace::Mark mark(context.workspace);
  const auto rows = static_cast<int>(args.logits.rows());
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(route_few,
                             {.blocks = 1,
                              .threads = kOneBlockThreads,
                              .shared_bytes = gpu::route_scratch_bytes(args.rule, rows)},
                             gpu::stream_of(context), gpu::route_arguments(context, args)));
}

void run_many(OpContext& context, const RouteExpertsArgs& args) {
  Workspace::Mark mark(context.workspace);
  const RouteArguments arguments = gpu::route_arguments(context, args);
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(choose_experts,
                             {.blocks = gpu::blocks_for(arguments.rows, kWarps),
                              .threads = kWarps * gpu::kWarpThreads,
                              .shared_bytes = gpu::route_scratch_bytes(args.rule, kWarps)},
                             gpu::stream_of(context), arguments));
  gpu::launch(context, list_experts, static_cast<unsigned>(args.rule.experts), kListThreads,
              arguments);
}

bool many_fit(const DeviceTraits& traits, const RouteExpertsArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.rule.experts <= gpu::kRoutedExpertsMax &&
         args.experts == nullptr && args.rule.scores != RouterScores::kSqrtSoftplus &&
         args.logits.rows() * args.rule.networks_of_row() <= INT32_MAX / 2;
}
bool few_fit(const DeviceTraits& traits, const RouteExpertsArgs& args) {
  constexpr int kScratchMax = 128 << 10;
  return many_fit(traits, args) && args.logits.rows() <= kOneBlockRows &&
         gpu::route_scratch_bytes(args.rule, kOneBlockRows) <= kScratchMax;
}

constexpr std::array kKernels = {
    Kernel<RouteExpertsArgs>{"route_experts/cuda/one_block", few_fit, run_few},
    Kernel<RouteExpertsArgs>{"route_experts/cuda/reference", many_fit, run_many},
};

}  // namespace

KernelTable<RouteExpertsArgs> route_experts_cuda_kernels() { return kKernels; }

}  // namespace headrace
