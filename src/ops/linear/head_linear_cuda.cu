// head_linear on CUDA. `tiles`: a warp has 16 rows of x and 32 of a head's rows of W, whose
// fragments it reads from the caches as they lie: matrices of heads are small, and what each warp
// reads of them is whole sectors. `any`: a warp an element.
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

// blockIdx: columns of a head's y, head, rows.
template <class T>
__global__ void __launch_bounds__(kThreads)
    multiply_head_tiles(const __grid_constant__ HeadArguments<T> args) {
  gpu::let_next_kernel_start();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const auto head = static_cast<int32_t>(blockIdx.y);
  const int32_t column = (static_cast<int32_t>(blockIdx.x) * kWarps + warp) * kColumnsOfWarp;
  const int32_t first = static_cast<int32_t>(blockIdx.z) * kTileRows;
  if (column >= args.n) return;
  gpu::wait_for_earlier_kernels();
  const int group = lane / 4, pair = lane % 4 * 2;
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
  float sums[kColumnTiles][4] = {};
#pragma unroll 8
  for (int32_t k = 0; k < args.k; k += 16) {
    const uint32_t a[4] = {load(low + k), load(high + k), load(low + k + 8), load(high + k + 8)};
#pragma unroll
    for (int n = 0; n < kColumnTiles; ++n) {
      gpu::multiply_add<T>(sums[n], a, load(weight[n] + k), load(weight[n] + k + 8));
    }
  }
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

constexpr std::array kKernels = {
    Kernel<HeadLinearArgs>{"head_linear/cuda/tiles", tiles_fit, run_tiles},
    Kernel<HeadLinearArgs>{
        .name = "head_linear/cuda/any", .supports = any, .run = run_any, .is_fallback = true}};

}  // namespace

KernelTable<HeadLinearArgs> head_linear_cuda_kernels() { return kKernels; }

}  // namespace headrace
