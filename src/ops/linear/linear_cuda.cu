// y = x W^T (+ bias) (+ y) on CUDA.
//   x [M, K], W [N, K] of one type: f32, f16 or bf16;  y [M, N] of that type or f32;  bias [N] f32
//   sums in f32, rounded once
// Six kernels: `gemv` (gemv.h), `stream` (stream.h), `few_rows` and `resident`
// (resident.h) of our own where M is small and reading W or the launch is all the time there
// is, the vendor's library, and `any` for shapes whose rows are not aligned.
#include <array>

#include "gpu/mma.cuh"
#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/linear/gemv.h"
#include "ops/linear/resident.h"
#include "ops/linear/stream.h"
#include "tensor/gemm_library.h"

namespace headrace {
namespace {

template <class T, class Y>
struct Arguments {
  gpu::RowsOf<const T> x;
  const T* weight;  // [N, K]
  const float* bias;
  gpu::RowsOf<Y> y;
  int32_t m, n, k;
  bool accumulates;
};

// Calls body with the arguments for the element types of x and y. REQUIRES: fits(args)
template <class Body>
void with_types(const LinearArgs& args, const Body& body) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    const auto make = [&]<class Y>(gpu::ElementType<Y>) {
      body(Arguments<T, Y>{.x = gpu::rows_of<T>(args.x),
                           .weight = reinterpret_cast<const T*>(args.weight->matrix().data),
                           .bias = args.bias,
                           .y = gpu::rows_of<Y>(args.y),
                           .m = static_cast<int32_t>(args.x.rows()),
                           .n = static_cast<int32_t>(args.weight->n()),
                           .k = static_cast<int32_t>(args.weight->k()),
                           .accumulates = args.output == LinearOutput::kAccumulate});
    };
    if (args.y.dtype == DType::kF32) return make(gpu::ElementType<float>());
    make(gpu::ElementType<T>());
  });
}

template <class T, class Y>
__device__ void finish(const Arguments<T, Y>& args, int32_t row, int32_t column, float sum) {
  Y& y = args.y.row(row)[column];
  if (args.bias != nullptr) sum += args.bias[column];
  if (args.accumulates) sum += gpu::to_float(y);
  y = gpu::from_float<Y>(sum);
}

bool fits(const DeviceTraits& traits, const LinearArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.weight->matrix().dtype == args.x.dtype &&
         (args.y.dtype == args.x.dtype || args.y.dtype == DType::kF32);
}
bool aligned(const LinearArgs& args) {
  return gpu::whole_accesses(args.x.dtype, args.x.columns()) && gpu::rows_aligned(args.x) &&
         gpu::rows_aligned(args.weight->matrix());
}

// --- few_rows: W is streamed once, as the 16-row side of m16n8k16 products ---
//
// A block takes 16 * kRowTiles rows of W and all of x; its warps take turns at spans of K and their
// sums meet in shared memory, in one order. The lanes of a quad load 16 bytes each, 64 in a row of
// W; which column of a span is which k of a product does not matter as long as x agrees, so what
// was loaded is used as it is: registers 0, 1 in one product, 2, 3 in the next.
constexpr int kFewWarps = 8;
constexpr int kFewThreads = kFewWarps * gpu::kWarpThreads;
constexpr int kSpan = 32;  // columns of W that a warp loads at a time
constexpr int kAhead = 4;  // spans in flight: 8 warps x 4 x 1 KB a row tile hide 1 us of DRAM
// Measured on an H200 (docs/kernels/notebook.md): with more rows, or more weights than these, the
// library is ahead; of 4096 x 4096 inside a step, though not alone.
constexpr int kFewRowsMax = 8;
constexpr int64_t kFewElementsMax = 2048 * 2048;

template <class T, class Y, int kColumnTiles, int kRowTiles>
__global__ void __launch_bounds__(kFewThreads) few_rows(Arguments<T, Y> args) {
  gpu::let_next_kernel_start();
  constexpr int kBlockRows = 16 * kRowTiles, kColumns = 8 * kColumnTiles;
  __shared__ float partial[kFewWarps][kBlockRows][kColumns + 1];
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int group = lane / 4, quad = lane % 4;
  const int32_t block_row = static_cast<int32_t>(blockIdx.x) * kBlockRows;

  // Rows past the end repeat the last: their sums are not stored.
  const T* weight[kRowTiles][2];
#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int half = 0; half < 2; ++half) {
      const int32_t row = min(block_row + 16 * r + 8 * half + group, args.n - 1);
      weight[r][half] = args.weight + static_cast<int64_t>(row) * args.k + 8 * quad;
    }
  }
  const T* x[kColumnTiles];
#pragma unroll
  for (int c = 0; c < kColumnTiles; ++c) {
    x[c] = args.x.row(min(8 * c + group, args.m - 1)) + 8 * quad;
  }

  uint4 w[kAhead][kRowTiles][2];
  const auto load_span = [&](int s, int32_t column) {
#pragma unroll
    for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
      for (int half = 0; half < 2; ++half) {
        w[s][r][half] =
            column < args.k ? gpu::load_streamed(weight[r][half] + column) : uint4{0, 0, 0, 0};
      }
    }
  };

  constexpr int32_t kStep = kFewWarps * kSpan * kAhead;
  const int32_t first = warp * kSpan * kAhead;
#pragma unroll
  for (int s = 0; s < kAhead; ++s) load_span(s, first + s * kSpan);
  gpu::wait_for_earlier_kernels();  // the first weights are on their way
  float sums[kRowTiles][kColumnTiles][4] = {};
  for (int32_t at = first; at < args.k; at += kStep) {
    uint4 b[kAhead][kColumnTiles];  // from L1: every warp of the block reads x
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
#pragma unroll
      for (int c = 0; c < kColumnTiles; ++c) {
        const int32_t column = at + s * kSpan;
        b[s][c] =
            column < args.k ? *reinterpret_cast<const uint4*>(x[c] + column) : uint4{0, 0, 0, 0};
      }
    }
#pragma unroll
    for (int s = 0; s < kAhead; ++s) {
#pragma unroll
      for (int r = 0; r < kRowTiles; ++r) {
        const uint4 low = w[s][r][0], high = w[s][r][1];
        const uint32_t even[4] = {low.x, high.x, low.y, high.y};
        const uint32_t odd[4] = {low.z, high.z, low.w, high.w};
#pragma unroll
        for (int c = 0; c < kColumnTiles; ++c) {
          gpu::multiply_add<T>(sums[r][c], even, b[s][c].x, b[s][c].y);
          gpu::multiply_add<T>(sums[r][c], odd, b[s][c].z, b[s][c].w);
        }
      }
      load_span(s, at + kStep + s * kSpan);  // so that kAhead spans are always on their way
    }
  }

#pragma unroll
  for (int r = 0; r < kRowTiles; ++r) {
#pragma unroll
    for (int c = 0; c < kColumnTiles; ++c) {
#pragma unroll
      for (int i = 0; i < 4; ++i) {
        partial[warp][16 * r + 8 * (i / 2) + group][8 * c + 2 * quad + i % 2] = sums[r][c][i];
      }
    }
  }
  __syncthreads();
  for (int i = static_cast<int>(threadIdx.x); i < kBlockRows * kColumns; i += kFewThreads) {
    const int row = i % kBlockRows,
              column = i / kBlockRows;  // of W, of x: neighbours store side by side
    if (column >= args.m || block_row + row >= args.n) continue;
    float sum = 0.0f;
#pragma unroll
    for (int from = 0; from < kFewWarps; ++from) sum += partial[from][row][column];
    finish(args, column, block_row + row, sum);
  }
}

template <int kColumnTiles, class T, class Y>
void launch_few_rows(OpContext& context, const Arguments<T, Y>& args) {
  // Two row tiles read x half as often; one gives enough blocks for a narrow W.
  const bool narrow = args.n < 32 * 2 * context.device.traits().sm_count;
  if (narrow) {
    gpu::launch(context, few_rows<T, Y, kColumnTiles, 1>, gpu::blocks_for(args.n, 16), kFewThreads,
                args);
  } else {
    gpu::launch(context, few_rows<T, Y, kColumnTiles, 2>, gpu::blocks_for(args.n, 32), kFewThreads,
                args);
  }
}

void run_few_rows(OpContext& context, const LinearArgs& args) {
  with_types(args, [&]<class T, class Y>(const Arguments<T, Y>& arguments) {
    if constexpr (sizeof(T) == 2) {
      launch_few_rows<1>(context, arguments);
    }
  });
}

bool few(const DeviceTraits& traits, const LinearArgs& args) {
  return !traits.batch_invariant && fits(traits, args) && aligned(args) &&
         args.x.dtype != DType::kF32 && args.x.rows() <= kFewRowsMax &&
         args.weight->k() % kSpan == 0 && args.weight->n() * args.weight->k() <= kFewElementsMax;
}

// --- the vendor's library ---

template <class Y>
__global__ void __launch_bounds__(256)
    add_bias(gpu::RowsOf<Y> y, const float* bias, int32_t columns, int64_t elements) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * 256 + threadIdx.x;
  if (i >= elements) return;
  Y& value = y.row(i / columns)[i % columns];
  value = gpu::from_float<Y>(gpu::to_float(value) + bias[i % columns]);
}

// The library is fast where N is a multiple of this; the columns behind the last whole eight are
// last_columns().
constexpr int64_t kLibraryColumns = 8;

int64_t library_columns(int64_t n) {
  return n > kLibraryColumns ? n - n % kLibraryColumns : n;
}

constexpr int kLastColumnsWarps = 4;

// A warp an element of y, from column `first` on. REQUIRES: rows of x and W on 16 bytes, whole
// accesses of K
template <class T, class Y>
__global__ void __launch_bounds__(kLastColumnsWarps* gpu::kWarpThreads)
    last_columns(Arguments<T, Y> args, int32_t first) {
  constexpr int kLane = 16 / sizeof(T), kStep = kLane * gpu::kWarpThreads;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int32_t element =
      static_cast<int32_t>(blockIdx.x * kLastColumnsWarps + threadIdx.x / gpu::kWarpThreads);
  const int32_t columns = args.n - first, row = element / columns;
  if (row >= args.m) return;
  const int32_t column = first + element % columns;
  const T* x = args.x.row(row);
  const T* weight = args.weight + static_cast<int64_t>(column) * args.k;
  float sum = 0.0f;
  for (int32_t i = lane * kLane; i < args.k; i += kStep) {
#pragma unroll
    for (int j = 0; j < kLane; ++j) {
      sum = fmaf(gpu::to_float(x[i + j]), gpu::to_float(weight[i + j]), sum);
    }
  }
  sum = gpu::warp_sum(sum);
  if (lane == 0) finish(args, row, column, sum);
}

void run_last_columns(OpContext& context, const LinearArgs& args, int64_t first) {
  LinearArgs unbiased = args;
  unbiased.bias = nullptr;  // add_bias() adds it to all columns
  with_types(unbiased, [&]<class T, class Y>(const Arguments<T, Y>& arguments) {
    const int64_t elements = args.x.rows() * (args.weight->n() - first);
    gpu::launch(context, last_columns<T, Y>, gpu::blocks_for(elements, kLastColumnsWarps),
                kLastColumnsWarps * gpu::kWarpThreads, arguments, static_cast<int32_t>(first));
  });
}

void run_library(OpContext& context, const LinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  std::byte* workspace = context.workspace.take(GemmLibrary::kWorkspaceBytes);
  GemmLibrary* library = context.device.gemm_library().value();
  const int64_t y_size = dtype_info(args.y.dtype).block_bytes;
  library->run(context.stream,
               {.x = args.x.data,
                .w = args.weight->matrix().data,
                .y = args.y.data,
                .m = args.x.rows(),
                .n = library_columns(args.weight->n()),
                .k = args.weight->k(),
                .x_stride = args.x.row_stride / dtype_info(args.x.dtype).block_bytes,
                .y_stride = args.y.row_stride / y_size,
                .dtype = args.x.dtype,
                .y_dtype = args.y.dtype,
                .accumulate = args.output == LinearOutput::kAccumulate},
               workspace);
  if (const int64_t first = library_columns(args.weight->n()); first < args.weight->n()) {
    run_last_columns(context, args, first);
  }
  if (args.bias == nullptr) return;
  gpu::with_float_type(args.y.dtype, [&]<class Y>(gpu::ElementType<Y>) {
    const int64_t elements = args.y.rows() * args.y.columns();
    gpu::launch(context, add_bias<Y>, gpu::blocks_for(elements, 256), 256, gpu::rows_of<Y>(args.y),
                args.bias, static_cast<int32_t>(args.y.columns()), elements);
  });
}

bool library(const DeviceTraits& traits, const LinearArgs& args) {
  return !traits.batch_invariant && fits(traits, args) && aligned(args) &&
         gpu::rows_aligned(args.y);
}

// --- any: a warp an element of y ---

constexpr int kAnyWarps = 4;

template <class T, class Y>
__global__ void __launch_bounds__(kAnyWarps* gpu::kWarpThreads) any_element(Arguments<T, Y> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kAnyWarps +
                          static_cast<int64_t>(threadIdx.x) / gpu::kWarpThreads;
  if (element >= static_cast<int64_t>(args.m) * args.n) return;
  const auto row = static_cast<int32_t>(element / args.n);
  const auto column = static_cast<int32_t>(element % args.n);
  const T* x = args.x.row(row);
  const T* weight = args.weight + static_cast<int64_t>(column) * args.k;
  float sum = 0.0f;
  for (int32_t i = lane; i < args.k; i += gpu::kWarpThreads) {
    sum = fmaf(gpu::to_float(x[i]), gpu::to_float(weight[i]), sum);
  }
  sum = gpu::warp_sum(sum);
  if (lane == 0) finish(args, row, column, sum);
}

void run_any(OpContext& context, const LinearArgs& args) {
  with_types(args, [&]<class T, class Y>(const Arguments<T, Y>& arguments) {
    const int64_t elements = int64_t{arguments.m} * arguments.n;
    gpu::launch(context, any_element<T, Y>, gpu::blocks_for(elements, kAnyWarps),
                kAnyWarps * gpu::kWarpThreads, arguments);
  });
}

// --- W streamed through shared memory (stream.h) ---

// Measured inside a step on an H200 (docs/kernels/notebook.md), where the first weights that it
// asks for early delay the small kernels before it: with fewer rows, more rows, or larger or
// much smaller weights (a 135M model's), the library is ahead.
constexpr int kStreamedRowsMin = 5, kStreamedRowsMax = 64;
constexpr int64_t kStreamedElementsMin = 2048 * 2048, kStreamedElementsMax = 4096 * 4096;

bool stream(const DeviceTraits& traits, const LinearArgs& args) {
  if (!stream_fits(traits, {.linear = args})) return false;
  const int64_t rows = args.x.rows(), elements = args.weight->n() * args.weight->k();
  return traits.batch_invariant ||
         (rows >= kStreamedRowsMin && rows <= kStreamedRowsMax &&
          elements >= kStreamedElementsMin && elements <= kStreamedElementsMax);
}
void run_linear_stream(OpContext& context, const LinearArgs& args) {
  run_stream(context, {.linear = args});
}

// --- products that other ops share (resident.h, gemv.h) ---

bool resident(const DeviceTraits& traits, const LinearArgs& args) {
  return resident_fits(traits, fused(args));
}
void run_linear_resident(OpContext& context, const LinearArgs& args) {
  run_resident(context, fused(args));
}
bool gemv(const DeviceTraits& traits, const LinearArgs& args) {
  return gemv_pays(traits, fused(args));
}
bool gemv_any_size(const DeviceTraits& traits, const LinearArgs& args) {
  return gemv_fits(traits, fused(args));
}
void run_linear_gemv(OpContext& context, const LinearArgs& args) { run_gemv(context, fused(args)); }

constexpr std::array kKernels = {
    Kernel<LinearArgs>{"linear/cuda/gemv", gemv, run_linear_gemv},
    Kernel<LinearArgs>{"linear/cuda/stream", stream, run_linear_stream},
    Kernel<LinearArgs>{"linear/cuda/few_rows", few, run_few_rows},
    Kernel<LinearArgs>{"linear/cuda/library", library, run_library},
    Kernel<LinearArgs>{
        .name = "linear/cuda/any", .supports = fits, .run = run_any, .is_fallback = true},
    // By name only (--prefer-kernels).
    Kernel<LinearArgs>{"linear/cuda/resident", resident, run_linear_resident},
    Kernel<LinearArgs>{"linear/cuda/gemv_any_size", gemv_any_size, run_linear_gemv},
};

}  // namespace

std::span<const Kernel<LinearArgs>> linear_cuda_kernels() { return kKernels; }

int64_t linear_cuda_workspace_bytes() { return GemmLibrary::kWorkspaceBytes + 256; }

}  // namespace headrace
