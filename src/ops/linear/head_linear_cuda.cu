// head_linear on CUDA. `tiles`: a warp has 16 rows of x and 32 of a head's rows of W, whose
// fragments it reads from the caches as they lie: matrices of heads are small, and what each warp
// reads of them is whole sectors. `few`: the warps of a block share out K, and add up what they
// have in order. `any`: a warp an element.
#include <array>

#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/head_linear.h"

namespace headrace {
namespace {

constexpr int kWarps = 4, kThreads = kWarps * gpu::kWarpThreads;
constexpr int kTileRows = 16, kColumnTiles = 4, kColumnsOfWarp = 8 * kColumnTiles;

template <class T>
struct HeadArguments {
  gpu::RowsOf<const T> x;
  const T* weight;  // [H N, K]
  gpu::RowsOf<T> y;
  int32_t rows, n, k, x_step, y_step;
  int64_t elements;  // of y
};

// 16 rows of x and 32 of a head's rows of W, in `warps` slices of K.
template <class T>
struct HeadTile {
  int32_t head, first, column, group, pair;
  float sums[kColumnTiles][4] = {};

  // blockIdx: columns of a head's y, head, rows.
  __device__ explicit HeadTile(int32_t column)
      : head(static_cast<int32_t>(blockIdx.y)),
        first(static_cast<int32_t>(blockIdx.z) * kTileRows),
        column(column),
        group(static_cast<int32_t>(threadIdx.x) % 32 / 4),
        pair(static_cast<int32_t>(threadIdx.x) % 4 * 2) {}

  __device__ __forceinline__ void multiply(const HeadArguments<T>& args, int32_t k_first,
                                           int32_t k_last) {
    // Rows and columns that are not there are others, whose sums are not stored.
    const T* const low = args.x.row(min(first + group, args.rows - 1)) + head * args.x_step + pair;
    const T* const high =
        args.x.row(min(first + group + 8, args.rows - 1)) + head * args.x_step + pair;
    const T* weight[kColumnTiles];
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int32_t row = min(column + 8 * n + group, args.n - 1);
      weight[n] = args.weight + (int64_t{head} * args.n + row) * args.k + pair;
    }
    const auto load = [](const T* from) { return *reinterpret_cast<const uint32_t*>(from); };
#pragma unroll 8
    for (int32_t k = k_first; k < k_last; k += 16) {
      const uint32_t a[4] = {load(low + k), load(high + k), load(low + k + 8), load(high + k + 8)};
#pragma unroll
      for (int n = 0; n < kColumnTiles; ++n) {
        gpu::multiply_add<T>(sums[n], a, load(weight[n] + k), load(weight[n] + k + 8));
      }
    }
  }

  __device__ __forceinline__ void store(const HeadArguments<T>& args) const {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const int32_t at = column + 8 * n + pair;
      if (at >= args.n) continue;
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        const int32_t row = first + group + 8 * half;
        if (row >= args.rows) continue;
        *reinterpret_cast<uint32_t*>(args.y.row(row) + head * args.y_step + at) =
            gpu::packed<T>(sums[n][2 * half], sums[n][2 * half + 1]);
      }
    }
  }
};

template <class T>
__global__ void __launch_bounds__(kThreads)
    multiply_head_tiles(const __grid_constant__ HeadArguments<T> args) {
  gpu::let_next_kernel_start();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  HeadTile<T> tile((static_cast<int32_t>(blockIdx.x) * kWarps + warp) * kColumnsOfWarp);
  if (tile.column >= args.n) return;
  gpu::wait_for_earlier_kernels();
  tile.multiply(args, 0, args.k);
  tile.store(args);
}

constexpr int kFewWarps = 8, kFewThreads = kFewWarps * gpu::kWarpThreads;

template <class T>
__global__ void __launch_bounds__(kFewThreads)
    multiply_head_few(const __grid_constant__ HeadArguments<T> args) {
  __shared__ float4 sums[kFewWarps][kColumnTiles][gpu::kWarpThreads];
  gpu::let_next_kernel_start();
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  HeadTile<T> tile(static_cast<int32_t>(blockIdx.x) * kColumnsOfWarp);
  gpu::wait_for_earlier_kernels();
  const int32_t slice = args.k / kFewWarps;
  tile.multiply(args, warp * slice, (warp + 1) * slice);
#pragma unroll
  for (int n = 0; n < kColumnTiles; ++n) {
    sums[warp][n][lane] = {tile.sums[n][0], tile.sums[n][1], tile.sums[n][2], tile.sums[n][3]};
  }
  __syncthreads();
  if (warp > 0) return;
  for (int w = 1; w < kFewWarps; ++w) {
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      const float4 more = sums[w][n][lane];
      tile.sums[n][0] += more.x;
      tile.sums[n][1] += more.y;
      tile.sums[n][2] += more.z;
      tile.sums[n][3] += more.w;
    }
  }
  tile.store(args);
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    multiply_head_elements(const __grid_constant__ HeadArguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int64_t element =
      int64_t{blockIdx.x} * kWarps + static_cast<int64_t>(threadIdx.x) / gpu::kWarpThreads;
  if (element >= args.elements) return;
  const auto column = static_cast<int32_t>(element % args.n);
  const auto head = static_cast<int32_t>(element / args.n);
  const int64_t row = blockIdx.z;
  const T* const x = args.x.row(row) + int64_t{head} * args.x_step;
  const T* const weight = args.weight + (int64_t{head} * args.n + column) * args.k;
  float sum = 0.0f;
  for (int32_t i = lane; i < args.k; i += gpu::kWarpThreads) {
    sum = fmaf(gpu::to_float(x[i]), gpu::to_float(weight[i]), sum);
  }
  sum = gpu::warp_sum(sum);
  if (lane == 0) {
    args.y.row(row)[int64_t{head} * args.y_step + column] = gpu::from_float<T>(sum);
  }
}

template <class T>
HeadArguments<T> arguments_of(const HeadLinearArgs& args) {
  return {.x = gpu::rows_of<T>(args.x),
          .weight = reinterpret_cast<const T*>(args.weight->matrix().data),
          .y = gpu::rows_of<T>(args.y),
          .rows = static_cast<int32_t>(args.x.rows()),
          .n = static_cast<int32_t>(args.head_rows()),
          .k = static_cast<int32_t>(args.weight->k()),
          .x_step = static_cast<int32_t>(args.x.columns() / args.heads),
          .y_step = static_cast<int32_t>(args.y.columns() / args.heads),
          .elements = args.weight->n()};
}

template <class T>
void run_tiles_of(OpContext& context, const HeadLinearArgs& args) {
  const HeadArguments<T> arguments = arguments_of<T>(args);
  const dim3 blocks(gpu::blocks_for(arguments.n, kWarps * kColumnsOfWarp),
                    static_cast<unsigned>(args.heads), gpu::blocks_for(arguments.rows, kTileRows));
  gpu::launch(context, multiply_head_tiles<T>, blocks, kThreads, arguments);
}
void run_tiles(OpContext& context, const HeadLinearArgs& args) {
  if (args.x.dtype == DType::kF16) return run_tiles_of<__half>(context, args);
  run_tiles_of<__nv_bfloat16>(context, args);
}

template <class T>
void run_few_of(OpContext& context, const HeadLinearArgs& args) {
  const HeadArguments<T> arguments = arguments_of<T>(args);
  const dim3 blocks(gpu::blocks_for(arguments.n, kColumnsOfWarp), static_cast<unsigned>(args.heads),
                    gpu::blocks_for(arguments.rows, kTileRows));
  gpu::launch(context, multiply_head_few<T>, blocks, kFewThreads, arguments);
}
void run_few(OpContext& context, const HeadLinearArgs& args) {
  if (args.x.dtype == DType::kF16) return run_few_of<__half>(context, args);
  run_few_of<__nv_bfloat16>(context, args);
}

// A warp an element, row by row: f32, and what no tile takes.
void run_any(OpContext& context, const HeadLinearArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int64_t kRowsOfLaunch = 32768;
    for (int64_t first = 0; first < args.x.rows(); first += kRowsOfLaunch) {
      const int64_t rows = std::min(kRowsOfLaunch, args.x.rows() - first);
      HeadLinearArgs some = args;
      some.x = args.x.row_range(first, rows);
      some.y = args.y.row_range(first, rows);
      gpu::launch(context, multiply_head_elements<T>,
                  dim3(gpu::blocks_for(args.weight->n(), kWarps), 1, static_cast<unsigned>(rows)),
                  kThreads, arguments_of<T>(some));
    }
  });
}

bool any(const DeviceTraits& traits, const HeadLinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.weight->is_matrix_of(args.x.dtype);
}
// Pairs of elements on 4 bytes, and whole steps of K.
bool tiles_fit(const DeviceTraits& traits, const HeadLinearArgs& args) {
  const DType dtype = args.x.dtype;
  const auto even = [](int64_t count) { return count % 2 == 0; };
  return any(traits, args) && (dtype == DType::kF16 || dtype == DType::kBF16) &&
         args.weight->k() % 16 == 0 && even(args.head_rows()) &&
         even(args.x.columns() / args.heads) && even(args.y.columns() / args.heads) &&
         args.x.row_stride % 4 == 0 && args.y.row_stride % 4 == 0 &&
         args.x.rows() <= int64_t{65535} * kTileRows;
}

// Up to so many rows, where a row's bits may depend on how many there are.
constexpr int64_t kFewRowsMax = 64;
bool few_fit(const DeviceTraits& traits, const HeadLinearArgs& args) {
  return tiles_fit(traits, args) && !traits.batch_invariant && args.x.rows() <= kFewRowsMax &&
         args.weight->k() % (16 * kFewWarps) == 0;
}

constexpr std::array kKernels = {
    Kernel<HeadLinearArgs>{"head_linear/cuda/few", few_fit, run_few},
    Kernel<HeadLinearArgs>{"head_linear/cuda/tiles", tiles_fit, run_tiles},
    Kernel<HeadLinearArgs>{
        .name = "head_linear/cuda/any", .supports = any, .run = run_any, .is_fallback = true}};

}  // namespace

KernelTable<HeadLinearArgs> head_linear_cuda_kernels() { return kKernels; }

}  // namespace headrace
