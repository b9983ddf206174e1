// x := (x + added) * scale / divisor on CUDA: a thread takes 16 bytes of one row (or one element).
//   x, added [T, D] f32, f16 or bf16; arithmetic in f32, rounded once
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/scale_rows.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    multiply_rows(gpu::RowsOf<T> x, gpu::RowsOf<const T> added, float scale, float divisor,
                  int64_t per_row, int64_t accesses) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t access = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (access >= accesses) return;
  const int64_t row = access / per_row, column = access % per_row * kWidth;
  auto value = gpu::Vector<T, kWidth>::load(x.row(row) + column);
  gpu::Vector<T, kWidth> more;
  if (added.data != nullptr) more = gpu::Vector<T, kWidth>::load(added.row(row) + column);
#pragma unroll
  for (int i = 0; i < kWidth; ++i) {
    float sum = gpu::to_float(value.values[i]);
    if (added.data != nullptr) sum += gpu::to_float(more.values[i]);
    value.values[i] = gpu::from_float<T>(__fmul_rn(sum, scale) / divisor);
  }
  value.store(x.row(row) + column);
}

template <bool kWide>
void run(OpContext& context, const ScaleRowsArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    const int64_t per_row = args.x.columns() / kWidth, accesses = args.x.rows() * per_row;
    gpu::launch(context, multiply_rows<T, kWidth>, gpu::blocks_for(accesses, kThreads), kThreads,
                gpu::rows_of<T>(args.x), gpu::rows_of<T>(args.added), args.scale, args.divisor,
                per_row, accesses);
  });
}

bool any(const DeviceTraits& traits, const ScaleRowsArgs&) {
  return traits.kind == DeviceKind::kCuda;
}
bool wide(const DeviceTraits& traits, const ScaleRowsArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.added);
}

constexpr std::array kKernels = {
    Kernel<ScaleRowsArgs>{"scale_rows/cuda/wide", wide, run<true>},
    Kernel<ScaleRowsArgs>{"scale_rows/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<ScaleRowsArgs> scale_rows_cuda_kernels() { return kKernels; }

}  // namespace headrace
