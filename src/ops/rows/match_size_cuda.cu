// Rows become as large as others on CUDA: one block a row, which reads its own a second time.
//   x, like, out [T, D] f32, f16 or bf16;  sums in f32, rounded once
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/match_size.h"

namespace headrace {
namespace {

constexpr int kThreads = 512;

template <class T>
struct Arguments {
  gpu::RowsOf<const T> x, like;
  gpu::RowsOf<T> out;
  int32_t columns;
  float least;
  bool adds;
};

template <class T, int kWidth>
__device__ float square_sum(const T* row, int32_t columns) {
  float sum = 0.0f;
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kWidth; at < columns;
       at += kThreads * kWidth) {
    const auto value = gpu::Vector<T, kWidth>::load(row + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float x = gpu::to_float(value.values[i]);
      sum += x * x;
    }
  }
  return sum;
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) match_row(Arguments<T> args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const T* const x = args.x.row(blockIdx.x);
  T* const out = args.out.row(blockIdx.x);
  const auto columns = static_cast<float>(args.columns);
  const float of_like = square_sum<T, kWidth>(args.like.row(blockIdx.x), args.columns);
  const float of_x = square_sum<T, kWidth>(x, args.columns);
  const float like = gpu::block_sum<kThreads>(of_like) / columns;
  __syncthreads();  // block_sum's own memory
  const float own = gpu::block_sum<kThreads>(of_x) / columns;
  // A NaN stays one.
  const float by = sqrtf(like) / sqrtf(own < args.least ? args.least : own);
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kWidth; at < args.columns;
       at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(x + at);
    gpu::Vector<T, kWidth> before;
    if (args.adds) before = gpu::Vector<T, kWidth>::load(out + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      float matched = gpu::to_float(value.values[i]) * by;
      if (args.adds) matched += gpu::to_float(before.values[i]);
      value.values[i] = gpu::from_float<T>(matched);
    }
    value.store(out + at);
  }
}

template <bool kWide>
void run(OpContext& context, const MatchSizeArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, match_row<T, kWidth>, static_cast<unsigned>(args.x.rows()), kThreads,
                {.x = gpu::rows_of<T>(args.x),
                 .like = gpu::rows_of<T>(args.like),
                 .out = gpu::rows_of<T>(args.out),
                 .columns = static_cast<int32_t>(args.x.columns()),
                 .least = args.least,
                 .adds = args.adds});
  });
}

bool any(const DeviceTraits& traits, const MatchSizeArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2;
}
bool wide(const DeviceTraits& traits, const MatchSizeArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.like) && gpu::rows_aligned(args.out);
}

constexpr std::array kKernels = {
    Kernel<MatchSizeArgs>{"match_size/cuda/wide", wide, run<true>},
    Kernel<MatchSizeArgs>{"match_size/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<MatchSizeArgs> match_size_cuda_kernels() { return kKernels; }

}  // namespace headrace
