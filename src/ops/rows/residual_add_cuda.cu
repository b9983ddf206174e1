// x := x + scale * residual on CUDA: a thread takes 16 bytes of one row (or one element).
//   x, residual [T, D] f32, f16 or bf16; the sum in f32, rounded once
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/residual_add.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    add_rows(gpu::RowsOf<T> x, gpu::RowsOf<const T> residual, float scale, int64_t per_row,
             int64_t accesses) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t access = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (access >= accesses) return;
  const int64_t row = access / per_row, at = access % per_row * kWidth;
  auto value = gpu::Vector<T, kWidth>::load(x.row(row) + at);
  const auto added = gpu::Vector<T, kWidth>::load(residual.row(row) + at);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    value.values[i] = gpu::from_float<T>(
        fmaf(gpu::to_float(added.values[i]), scale, gpu::to_float(value.values[i])));
  }
  value.store(x.row(row) + at);
}

template <bool kWide>
void run(OpContext& context, const ResidualAddArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    const int64_t per_row = args.x.columns() / kWidth, accesses = args.x.rows() * per_row;
    gpu::launch(context, add_rows<T, kWidth>, gpu::blocks_for(accesses, kThreads), kThreads,
                gpu::rows_of<T>(args.x), gpu::rows_of<T>(args.residual), args.scale, per_row,
                accesses);
  });
}

bool any(const DeviceTraits& traits, const ResidualAddArgs&) {
  return traits.kind == DeviceKind::kCuda;
}
bool wide(const DeviceTraits& traits, const ResidualAddArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.residual);
}

constexpr std::array kKernels = {
    Kernel<ResidualAddArgs>{"residual_add/cuda/wide", wide, run<true>},
    Kernel<ResidualAddArgs>{"residual_add/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<ResidualAddArgs> residual_add_cuda_kernels() { return kKernels; }

}  // namespace headrace
