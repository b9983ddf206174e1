// Sparse gates on CUDA: one block a row, which reads it three times: for the mean, for the
// deviation and to cut it.
//   x [T, F] f32, f16 or bf16; sums in f32, rounded once
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/cut_gates.h"

namespace headrace {
namespace {

constexpr int kThreads = 512;

// The sum over the row of what `of` makes of an element, on every thread.
template <class T, int kWidth, class Of>
__device__ float row_sum(const T* row, int32_t columns, const Of& of) {
  float sum = 0.0f;
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kWidth; at < columns;
       at += kThreads * kWidth) {
    const auto value = gpu::Vector<T, kWidth>::load(row + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) sum += of(gpu::to_float(value.values[i]));
  }
  __syncthreads();  // block_sum's own memory, from the sum before
  return gpu::block_sum<kThreads>(sum);
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    cut_row(gpu::RowsOf<T> x, int32_t columns, float cutoff) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  T* const row = x.row(blockIdx.x);
  const auto count = static_cast<float>(columns);
  const float mean = row_sum<T, kWidth>(row, columns, [](float gate) { return gate; }) / count;
  const float variance =
      row_sum<T, kWidth>(row, columns,
                         [mean](float gate) { return (gate - mean) * (gate - mean); }) /
      count;
  const float least = mean + sqrtf(variance) * cutoff;
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kWidth; at < columns;
       at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(row + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float above = gpu::to_float(value.values[i]) - least;
      value.values[i] = gpu::from_float<T>(above < 0.0f ? 0.0f : above);  // a NaN stays one
    }
    value.store(row + at);
  }
}

template <bool kWide>
void run(OpContext& context, const CutGatesArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, cut_row<T, kWidth>, static_cast<unsigned>(args.x.rows()), kThreads,
                gpu::rows_of<T>(args.x), static_cast<int32_t>(args.x.columns()), args.cutoff);
  });
}

bool any(const DeviceTraits& traits, const CutGatesArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2;
}
bool wide(const DeviceTraits& traits, const CutGatesArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x);
}

constexpr std::array kKernels = {
    Kernel<CutGatesArgs>{"cut_gates/cuda/wide", wide, run<true>},
    Kernel<CutGatesArgs>{"cut_gates/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<CutGatesArgs> cut_gates_cuda_kernels() { return kKernels; }

}  // namespace headrace
