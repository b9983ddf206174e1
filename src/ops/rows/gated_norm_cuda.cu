// gated_norm on CUDA, in place: a block a row and group, which goes over its columns twice.
//   x, gate [T, C] f32, f16 or bf16; all arithmetic in f32
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/gated_norm.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

template <class T>
struct GatedNormRows {
  gpu::RowsOf<T> x;
  gpu::RowsOf<const T> gate;
  const float* weight;
  int32_t group;
  float eps, gate_scale;
  bool normalises, gate_first;

  __device__ float silu(int64_t row, int64_t column) const {
    const float value = gate_scale * gpu::to_float(gate.row(row)[column]);
    return value / (1.0f + __expf(-value));
  }
};

// blockIdx: row, group.
template <class T>
__global__ void __launch_bounds__(kThreads)
    gate_groups(const __grid_constant__ GatedNormRows<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t row = blockIdx.x, first = int64_t{blockIdx.y} * args.group;
  T* const x = args.x.row(row);
  float scale = 1.0f;
  if (args.normalises) {
    float squares = 0.0f;
    for (int64_t i = first + threadIdx.x; i < first + args.group; i += kThreads) {
      const float y = gpu::to_float(x[i]) * (args.gate_first ? args.silu(row, i) : 1.0f);
      squares = fmaf(y, y, squares);
    }
    squares = gpu::block_sum<kThreads>(squares);
    scale = 1.0f / sqrtf(squares / static_cast<float>(args.group) + args.eps);
  }
  for (int64_t i = first + threadIdx.x; i < first + args.group; i += kThreads) {
    const float y = gpu::to_float(x[i]) * args.silu(row, i) * scale * args.weight[i];
    x[i] = gpu::from_float<T>(y);
  }
}

void run(OpContext& context, const GatedNormArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::launch(context, gate_groups<T>,
                dim3(static_cast<unsigned>(args.x.rows()),
                     static_cast<unsigned>(args.x.columns() / args.group)),
                kThreads,
                GatedNormRows<T>{.x = gpu::rows_of<T>(args.x),
                                 .gate = gpu::rows_of<T>(args.gate),
                                 .weight = args.weight,
                                 .group = static_cast<int32_t>(args.group),
                                 .eps = args.eps,
                                 .gate_scale = args.gate_scale,
                                 .normalises = args.norm != GatedNorm::kNone,
                                 .gate_first = args.norm == GatedNorm::kBehindGate});
  });
}

bool any(const DeviceTraits& traits, const GatedNormArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<GatedNormArgs>{"gated_norm/cuda/groups", any, run}};

}  // namespace

KernelTable<GatedNormArgs> gated_norm_cuda_kernels() { return kKernels; }

}  // namespace headrace
