// norm_route on CUDA for up to four rows: a cluster of eight blocks has some of the router's rows
// each, on their way before the kernels before have ended. Every block normalises all rows of x for
// itself; the first writes them, and when all logits are there chooses and lists.
//   x [M, K] of T, 16 bits; the norm's weights and the router [N, K] f32; sums in f32
#include <algorithm>
#include <array>

#include "gpu/cluster.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/norm_route.h"
#include "ops/rows/route_row.cuh"

namespace headrace {
namespace {

constexpr int kRouteBlocks = 8;     // of the cluster
constexpr int kRouteThreads = 512;  //
constexpr int kRouteWarps = kRouteThreads / gpu::kWarpThreads;
constexpr int kRouteRows = 4;
constexpr int kRouteHeld = 16;  // accesses of a row of the router that a lane holds: 2,048 columns
constexpr int kRouteSharedMax = 160 << 10;

template <class T>
struct NormRouteArguments {
  gpu::RowsOf<T> x;
  gpu::RowsOf<const T> residual;  // no data: none
  const float* norm;              // [K]
  gpu::RowsOf<T> normed;
  gpu::RowsOf<const float> router;
  gpu::RowsOf<float> logits;
  gpu::RouteArguments route;
  int32_t rows, columns, logit_count;
  float eps, residual_scale;
};

// Shared memory of a block: rows of x, normalised rows as f32, then what routing takes.
template <class T>
struct NormRouteShared {
  float* normed;      // [rows, K]
  T* x;               // [rows, K]
  uint64_t* scratch;  // over both, which are not read any more by then

  __device__ static NormRouteShared at(std::byte* front, const NormRouteArguments<T>& args) {
    auto* const normed = reinterpret_cast<float*>(front);
    return {normed, reinterpret_cast<T*>(normed + args.rows * args.columns),
            reinterpret_cast<uint64_t*>(front)};
  }
};

// x + residual, and its square sum over the row, on every thread.
template <class T>
__device__ float load_row(const NormRouteArguments<T>& args, int32_t row, T* to) {
  using Four = gpu::Vector<T, 4>;
  float sum = 0.0f;
  for (int32_t at = 4 * static_cast<int32_t>(threadIdx.x); at < args.columns;
       at += 4 * kRouteThreads) {
    Four value = Four::load(args.x.row(row) + at);
    if (args.residual.data != nullptr) {
      const Four added = Four::load(args.residual.row(row) + at);
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        value.values[i] = gpu::from_float<T>(gpu::to_float(value.values[i]) +
                                             args.residual_scale * gpu::to_float(added.values[i]));
      }
    }
    value.store(to + at);
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      sum = fmaf(gpu::to_float(value.values[i]), gpu::to_float(value.values[i]), sum);
    }
  }
  __syncthreads();  // block_sum's own memory, from the row before
  return gpu::block_sum<kRouteThreads>(sum);
}

// Each thread scales what it has loaded itself.
template <class T>
__device__ void normalise_row(const NormRouteArguments<T>& args, int32_t row, float squares,
                              const NormRouteShared<T>& shared, bool writes) {
  using Four = gpu::Vector<T, 4>;
  const float scale = rsqrtf(squares / static_cast<float>(args.columns) + args.eps);
  for (int32_t at = 4 * static_cast<int32_t>(threadIdx.x); at < args.columns;
       at += 4 * kRouteThreads) {
    const Four value = Four::load(shared.x + row * args.columns + at);
    const float4 weight = *reinterpret_cast<const float4*>(args.norm + at);
    const float weights[4] = {weight.x, weight.y, weight.z, weight.w};
    Four normed;
#pragma unroll
    for (int i = 0; i < 4; ++i) {
      normed.values[i] = gpu::from_float<T>(gpu::to_float(value.values[i]) * scale * weights[i]);
      shared.normed[row * args.columns + at + i] = gpu::to_float(normed.values[i]);
    }
    if (writes) normed.store(args.normed.row(row) + at);
  }
}

// Columns of the router that a lane has: four, 128 apart, from `first` on; zeros behind the end.
struct HeldColumns {
  float4 of[kRouteHeld];

  __device__ __forceinline__ void load(const float* router, int32_t first, int32_t columns) {
    const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
#pragma unroll
    for (int i = 0; i < kRouteHeld; ++i) {
      const int32_t at = first + 4 * (i * gpu::kWarpThreads + lane);
      of[i] = at < columns ? *reinterpret_cast<const float4*>(router + at) : float4{};
    }
  }
  __device__ __forceinline__ float times(const float* x, int32_t first, int32_t columns) const {
    const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
    float sum = 0.0f;
#pragma unroll
    for (int i = 0; i < kRouteHeld; ++i) {
      const int32_t at = first + 4 * (i * gpu::kWarpThreads + lane);
      if (at >= columns) continue;
      const float4 values = *reinterpret_cast<const float4*>(x + at);
      sum = fmaf(of[i].x, values.x, sum);
      sum = fmaf(of[i].y, values.y, sum);
      sum = fmaf(of[i].z, values.z, sum);
      sum = fmaf(of[i].w, values.w, sum);
    }
    return sum;
  }
};

// Of one row of the router, by a warp; `held` has its first columns.
template <class T>
__device__ void write_logits(const NormRouteArguments<T>& args, const NormRouteShared<T>& shared,
                             HeldColumns& held, int32_t logit) {
  constexpr int32_t kHeldColumns = 4 * kRouteHeld * gpu::kWarpThreads;
  float sums[kRouteRows] = {};
  for (int32_t first = 0; first < args.columns; first += kHeldColumns) {
    if (first > 0) held.load(args.router.row(logit), first, args.columns);
#pragma unroll
    for (int r = 0; r < kRouteRows; ++r) {
      if (r >= args.rows) continue;
      sums[r] += held.times(shared.normed + r * args.columns, first, args.columns);
    }
  }
#pragma unroll
  for (int r = 0; r < kRouteRows; ++r) {
    if (r >= args.rows) continue;
    const float logit_of_row = gpu::warp_sum(sums[r]);
    if (threadIdx.x % gpu::kWarpThreads == 0) args.logits.row(r)[logit] = logit_of_row;
  }
}

template <class T>
__global__ void __launch_bounds__(kRouteThreads, 1)
    norm_route_cluster(const __grid_constant__ NormRouteArguments<T> args) {
  extern __shared__ __align__(16) std::byte front[];
  const auto shared = NormRouteShared<T>::at(front, args);
  const auto rank = static_cast<int32_t>(gpu::cluster_rank());
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  gpu::let_next_kernel_start();
  // Rows of the router are dealt out to the warps of all blocks, one after the other.
  const int32_t own = rank + kRouteBlocks * warp;
  HeldColumns held;
  if (own < args.logit_count) held.load(args.router.row(own), 0, args.columns);
  gpu::wait_for_earlier_kernels();
  for (int32_t row = 0; row < args.rows; ++row) {
    const float squares = load_row(args, row, shared.x + row * args.columns);
    normalise_row(args, row, squares, shared, rank == 0);
  }
  __syncthreads();
  for (int32_t logit = own; logit < args.logit_count; logit += kRouteBlocks * kRouteWarps) {
    if (logit != own) held.load(args.router.row(logit), 0, args.columns);
    write_logits(args, shared, held, logit);
  }
  gpu::cluster_sync();  // all have read x, and written logits
  if (rank != 0) return;
  if (args.residual.data != nullptr) {
    for (int32_t i = 4 * static_cast<int32_t>(threadIdx.x); i < args.rows * args.columns;
         i += 4 * kRouteThreads) {
      gpu::Vector<T, 4>::load(shared.x + i).store(args.x.row(i / args.columns) + i % args.columns);
    }
  }
  __syncthreads();  // what routing takes may lie over x
  gpu::route_in_block(args.route, shared.scratch);
}

int shared_bytes_of(const NormRouteArgs& args) {
  const int64_t elements = args.norm.x.rows() * args.norm.x.columns();
  const int64_t rows = elements * static_cast<int64_t>(sizeof(float) + sizeof(uint16_t));
  const int scratch =
      gpu::route_scratch_bytes(args.route.rule, static_cast<int>(args.norm.x.rows()));
  return static_cast<int>(std::max<int64_t>(rows, scratch));
}

template <class T>
void launch_norm_route(OpContext& context, const NormRouteArgs& args) {
  Workspace::Mark mark(context.workspace);
  const NormRouteArguments<T> arguments{.x = gpu::rows_of<T>(args.norm.x),
                                        .residual = gpu::rows_of<T>(args.norm.residual),
                                        .norm = args.norm.weight,
                                        .normed = gpu::rows_of<T>(args.norm.out),
                                        .router = gpu::rows_of<float>(args.router.weight->matrix()),
                                        .logits = gpu::rows_of<float>(args.router.y),
                                        .route = gpu::route_arguments(context, args.route),
                                        .rows = static_cast<int32_t>(args.norm.x.rows()),
                                        .columns = static_cast<int32_t>(args.norm.x.columns()),
                                        .logit_count = args.route.rule.logits(),
                                        .eps = args.norm.eps,
                                        .residual_scale = args.norm.residual_scale};
  gpu::check_launch(context.stream, gpu::launch_overlapped(norm_route_cluster<T>,
                                                           {.blocks = kRouteBlocks,
                                                            .threads = kRouteThreads,
                                                            .shared_bytes = shared_bytes_of(args),
                                                            .cluster = kRouteBlocks},
                                                           gpu::stream_of(context), arguments));
}

void run_norm_route(OpContext& context, const NormRouteArgs& args) {
  if (args.norm.x.dtype == DType::kF16) return launch_norm_route<__half>(context, args);
  launch_norm_route<__nv_bfloat16>(context, args);
}

bool norm_route_fits(const DeviceTraits& traits, const NormRouteArgs& args) {
  if (traits.kind != DeviceKind::kCuda || traits.compute_capability != 90) return false;
  const RmsNormArgs& norm = args.norm;
  const int64_t rows = norm.x.rows(), columns = norm.x.columns();
  return !traits.batch_invariant && rows <= kRouteRows && columns % 4 == 0 &&
         (norm.x.dtype == DType::kF16 || norm.x.dtype == DType::kBF16) &&
         args.router.weight->is_matrix_of(DType::kF32) && args.router.bias == nullptr &&
         rows * columns * 6 <= kRouteSharedMax &&
         args.route.rule.experts <= gpu::kRoutedExpertsMax && args.route.experts == nullptr &&
         args.route.rule.scores != RouterScores::kSqrtSoftplus &&
         shared_bytes_of(args) <= kRouteSharedMax && gpu::rows_aligned(norm.x) &&
         gpu::rows_aligned(norm.residual) && gpu::rows_aligned(norm.out) &&
         gpu::rows_aligned(args.router.weight->matrix()) && gpu::multiple_of_access(norm.weight);
}

constexpr std::array kNormRoute = {Kernel<NormRouteArgs>{"norm_route/cuda/cluster", norm_route_fits,
                                                         run_norm_route, Selection::kByName}};

}  // namespace

KernelTable<NormRouteArgs> norm_route_cuda_kernels() { return kNormRoute; }

}  // namespace headrace
