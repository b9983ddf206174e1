// LayerNorm with residual on CUDA: one block a group of a row.
//   x, residual, out [T, D] f32, f16 or bf16;  weight, bias [D] f32;  sums in f32
// The mean is taken first and the variance around it, as two passes over a row that stays in L1.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/layer_norm.h"

namespace headrace {
namespace {

// Of a block: of whole rows, and of groups of few columns, as heads are.
constexpr int kRowThreads = 256, kHeadThreads = 64;
constexpr int64_t kHeadColumnsMax = 256;

template <class T>
struct Arguments {
  gpu::RowsOf<T> x;
  gpu::RowsOf<const T> residual;  // no data = none
  const float* weight;
  const float* bias;
  gpu::RowsOf<T> out;
  int32_t columns;  // of a group
  float eps, residual_scale;
};

// blockIdx.y: the group.
template <class T, int kThreads>
__global__ void __launch_bounds__(kThreads) layer_norm_row(Arguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t from = static_cast<int64_t>(blockIdx.y) * args.columns;
  T* x = args.x.row(blockIdx.x) + from;
  T* out = args.out.row(blockIdx.x) + from;
  const T* residual =
      args.residual.data == nullptr ? nullptr : args.residual.row(blockIdx.x) + from;
  const float* const weight = args.weight + from;
  const float* const bias = args.bias + from;
  const int32_t first = static_cast<int32_t>(threadIdx.x);
  float sum = 0.0f;
  for (int32_t i = first; i < args.columns; i += kThreads) {
    if (residual != nullptr) {
      x[i] = gpu::from_float<T>(
          fmaf(gpu::to_float(residual[i]), args.residual_scale, gpu::to_float(x[i])));
    }
    sum += gpu::to_float(x[i]);
  }
  const auto count = static_cast<float>(args.columns);
  const float mean = gpu::block_sum<kThreads>(sum) / count;
  float squares = 0.0f;
  for (int32_t i = first; i < args.columns; i += kThreads) {
    const float distance = gpu::to_float(x[i]) - mean;
    squares += distance * distance;
  }
  __syncthreads();  // block_sum's memory is used again
  const float factor = rsqrtf(gpu::block_sum<kThreads>(squares) / count + args.eps);
  for (int32_t i = first; i < args.columns; i += kThreads) {
    out[i] = gpu::from_float<T>((gpu::to_float(x[i]) - mean) * factor * weight[i] + bias[i]);
  }
}

template <int kThreads>
void launch(OpContext& context, const LayerNormArgs& args) {
  const dim3 blocks(static_cast<unsigned>(args.x.rows()), static_cast<unsigned>(args.groups));
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::launch(context, layer_norm_row<T, kThreads>, blocks, kThreads,
                {.x = gpu::rows_of<T>(args.x),
                 .residual = gpu::rows_of<T>(args.residual),
                 .weight = args.weight,
                 .bias = args.bias,
                 .out = gpu::rows_of<T>(args.out),
                 .columns = static_cast<int32_t>(args.x.columns() / args.groups),
                 .eps = args.eps,
                 .residual_scale = args.residual_scale});
  });
}

void run(OpContext& context, const LayerNormArgs& args) {
  const bool heads = args.groups > 1 && args.x.columns() / args.groups <= kHeadColumnsMax;
  if (heads) return launch<kHeadThreads>(context, args);
  launch<kRowThreads>(context, args);
}

bool any(const DeviceTraits& traits, const LayerNormArgs& args) {
  constexpr int32_t kGroupsMax = 65535;  // of a grid
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2 &&
         args.groups <= kGroupsMax;
}

constexpr std::array kKernels = {Kernel<LayerNormArgs>{"layer_norm/cuda/row", any, run}};

}  // namespace

KernelTable<LayerNormArgs> layer_norm_cuda_kernels() { return kKernels; }

}  // namespace headrace
