// Arguments of attention over latents (latent_attention_cuda.cu), and the kernel that merges what
// parts of a tile leave in the workspace.
#pragma once

#include "ops/attention/attention_cuda.cuh"
#include "ops/attention/latent_plan.h"

namespace headrace {

template <class T>
struct LatentArguments {
  gpu::AttentionArguments<T> attention;
  float* partials;  // [partial, group][kLatentTileRows][kLatentPartialFloats] or null: nothing is
                    // shared out
  LatentShares* rows;  // [T heads] or null, with partials
  int32_t groups, group_heads, positions;

  // This thread block's parts.
  __device__ int32_t part(int32_t after) const {
    const auto* teams =
        reinterpret_cast<const int32_t*>(attention.plan + attention.header().teams_first);
    return teams[static_cast<int32_t>(blockIdx.x) / groups + after];
  }
  __device__ int32_t group() const { return static_cast<int32_t>(blockIdx.x) % groups; }
};

constexpr int kMergeWarps = 8, kMergeThreads = kMergeWarps * 32;
constexpr int32_t kMergeBlocksMax = 1024;
constexpr int kMergePairs = kLatentValueDim / 64;  // of columns, a lane
static_assert(kMergePairs == kMergeWarps, "a warp writes one of them");

// What a warp has of a row and head.
struct MergePart {
  float largest = -INFINITY, total = 0.0f;
  float2 sums[kMergePairs] = {};

  __device__ __forceinline__ void add(const float* from, int lane) {
    const auto state = *reinterpret_cast<const float2*>(from + kLatentValueDim);
    const float grown = fmaxf(largest, state.x);
    const float origin = gpu::softmax_origin(grown);
    const float keep = gpu::exp2_fast(largest - origin), take = gpu::exp2_fast(state.x - origin);
    largest = grown;
    total = total * keep + take * state.y;
#pragma unroll
    for (int i = 0; i < kMergePairs; ++i) {
      const auto more = *reinterpret_cast<const float2*>(from + lane * 2 + i * 64);
      sums[i] = {fmaf(take, more.x, sums[i].x * keep), fmaf(take, more.y, sums[i].y * keep)};
    }
  }
};

struct MergeShared {
  float2 states[kMergeWarps];  // largest, total
  float2 sums[kMergeWarps][kLatentValueDim / 2];
  int32_t todo[kMergeThreads];
  int32_t todo_count;
};

template <class T>
__device__ void merge_row(const LatentArguments<T>& args, MergeShared& shared, int32_t at) {
  const gpu::AttentionArguments<T>& attention = args.attention;
  const int lane = static_cast<int>(threadIdx.x) % 32, warp = static_cast<int>(threadIdx.x) / 32;
  const int32_t row = at / attention.group, head = at % attention.group;
  auto* const out = reinterpret_cast<uint32_t*>(attention.out.row(row) + head * kLatentValueDim +
                                                warp * 64 + lane * 2);
  if (row >= attention.header().row_count) {
    *out = 0;
    return;
  }
  const LatentShares shares = args.rows[at];
  MergePart part;
#pragma unroll 2
  for (int32_t s = warp; s < shares.count; s += kMergeWarps) {
    part.add(args.partials +
                 (int64_t{s} * args.groups * kLatentTileRows + shares.first) * kLatentPartialFloats,
             lane);
  }
  __syncthreads();
  shared.states[warp] = {part.largest, part.total};
#pragma unroll
  for (int i = 0; i < kMergePairs; ++i) shared.sums[warp][lane + i * 32] = part.sums[i];
  __syncthreads();
  float largest = -INFINITY, total = 0.0f;
  for (int w = 0; w < kMergeWarps; ++w) largest = fmaxf(largest, shared.states[w].x);
  const float origin = gpu::softmax_origin(largest);
  float2 sum{0.0f, 0.0f};
  for (int w = 0; w < kMergeWarps; ++w) {
    const float take = gpu::exp2_fast(shared.states[w].x - origin);
    const float2 more = shared.sums[w][lane + warp * 32];
    total += take * shared.states[w].y;
    sum = {fmaf(take, more.x, sum.x), fmaf(take, more.y, sum.y)};
  }
  *out = gpu::packed<T>(sum.x / total, sum.y / total);
}

// Rows and heads blockIdx, blockIdx + gridDim and so on, `each` of them, so that the many of one
// row are spread: those that were shared out are merged, a warp every so manieth share, and those
// of padding become zero.
template <class T>
__global__ void __launch_bounds__(kMergeThreads)
    merge_latents(const __grid_constant__ LatentArguments<T> args, int32_t count, int32_t each) {
  __shared__ MergeShared shared;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const AttentionPlanHeader& header = args.attention.header();
  const bool are_shared = header.latents_shared != 0;
  const int32_t padding = header.row_count * args.attention.group;
  if (!are_shared && padding >= count) return;
  for (int32_t from = 0; from < each; from += kMergeThreads) {
    __syncthreads();
    if (threadIdx.x == 0) shared.todo_count = 0;
    __syncthreads();
    const int32_t turn = from + static_cast<int32_t>(threadIdx.x);
    const int32_t at = static_cast<int32_t>(blockIdx.x) + turn * static_cast<int32_t>(gridDim.x);
    if (turn < each && at < count && (at >= padding || (are_shared && args.rows[at].count > 1))) {
      shared.todo[atomicAdd(&shared.todo_count, 1)] = at;
    }
    __syncthreads();
    for (int i = 0; i < shared.todo_count; ++i) merge_row(args, shared, shared.todo[i]);
  }
}

}  // namespace headrace
