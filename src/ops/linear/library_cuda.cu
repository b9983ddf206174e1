// linear by the vendor's library. What it does not do: a bias, and the columns behind the last
// whole eight.
#include "gpu/reduce.cuh"
#include "ops/linear/plain.cuh"
#include "ops/linear/plain.h"
#include "tensor/gemm_library.h"

namespace headrace {
namespace {

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

int64_t library_columns(int64_t n) { return n > kLibraryColumns ? n - n % kLibraryColumns : n; }

constexpr int kLastColumnsWarps = 4;

// A warp an element of y, from column `first` on. REQUIRES: rows of x and W on 16 bytes, whole
// accesses of K
template <class T, class Y>
__global__ void __launch_bounds__(kLastColumnsWarps* gpu::kWarpThreads)
    last_columns(gpu::PlainArguments<T, Y> args, int32_t first) {
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
  if (lane == 0) gpu::finish_plain(args, row, column, sum);
}

void run_last_columns(OpContext& context, const LinearArgs& args, int64_t first) {
  LinearArgs unbiased = args;
  unbiased.bias = nullptr;  // add_bias() adds it to all columns
  gpu::with_plain_types(
      unbiased, [&]<class T, class Y>(const gpu::PlainArguments<T, Y>& arguments) {
        const int64_t elements = args.x.rows() * (args.weight->n() - first);
        gpu::launch(context, last_columns<T, Y>, gpu::blocks_for(elements, kLastColumnsWarps),
                    kLastColumnsWarps * gpu::kWarpThreads, arguments, static_cast<int32_t>(first));
      });
}

}  // namespace

bool linear_library_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return !traits.batch_invariant && gpu::plain_types(traits, args) && gpu::plain_aligned(args) &&
         gpu::rows_aligned(args.y);
}

void run_linear_library(OpContext& context, const LinearArgs& args) {
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
  add_bias_rows(context, args.y, args.bias);
}

void add_bias_rows(OpContext& context, const TensorView& y, const float* bias) {
  if (bias == nullptr) return;
  gpu::with_float_type(y.dtype, [&]<class Y>(gpu::ElementType<Y>) {
    const int64_t elements = y.rows() * y.columns();
    gpu::launch(context, add_bias<Y>, gpu::blocks_for(elements, 256), 256, gpu::rows_of<Y>(y), bias,
                static_cast<int32_t>(y.columns()), elements);
  });
}

int64_t linear_cuda_workspace_bytes() { return GemmLibrary::kWorkspaceBytes + 256; }

}  // namespace headrace
