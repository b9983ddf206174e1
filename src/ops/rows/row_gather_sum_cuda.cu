// out[t] = sum of scales[p] * x[p] over the places p of row t, on CUDA: a thread takes 16 bytes of
// a row (or one element, where rows are not aligned).
//   x [R, D], out [T, D] f32, f16 or bf16; sums in f32, rounded once
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/row_gather_sum.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    sum_rows(gpu::RowsOf<const T> x, const int32_t* places, const float* scales, gpu::RowsOf<T> out,
             int32_t each, int32_t accesses) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const auto access = static_cast<int32_t>(blockIdx.y * kThreads + threadIdx.x);
  if (access >= accesses) return;
  const int64_t row = blockIdx.x, at = int64_t{access} * kWidth;
  const int32_t* const own = places + row * each;
  float sums[kWidth] = {};
#pragma unroll 8
  for (int32_t j = 0; j < each; ++j) {
    const int32_t place = own[j];
    if (place < 0) continue;
    const float scale = scales == nullptr ? 1.0f : scales[place];
    const auto values = gpu::Vector<T, kWidth>::load(x.row(place) + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      sums[i] = __fadd_rn(sums[i], __fmul_rn(scale, gpu::to_float(values.values[i])));
    }
  }
  gpu::Vector<T, kWidth> result;
#pragma unroll
  for (int i = 0; i < kWidth; ++i) result.values[i] = gpu::from_float<T>(sums[i]);
  result.store(out.row(row) + at);
}

template <bool kWide>
void run(OpContext& context, const RowGatherSumArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    const int64_t accesses = args.out.columns() / kWidth;
    const dim3 blocks(static_cast<unsigned>(args.out.rows()), gpu::blocks_for(accesses, kThreads));
    gpu::launch(context, sum_rows<T, kWidth>, blocks, kThreads, gpu::rows_of<T>(args.x),
                args.places.data(), args.scales.empty() ? nullptr : args.scales.data(),
                gpu::rows_of<T>(args.out),
                static_cast<int32_t>(std::ssize(args.places) / args.out.rows()),
                static_cast<int32_t>(accesses));
  });
}

bool any(const DeviceTraits& traits, const RowGatherSumArgs&) {
  return traits.kind == DeviceKind::kCuda;
}
bool wide(const DeviceTraits& traits, const RowGatherSumArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.out);
}

constexpr std::array kKernels = {
    Kernel<RowGatherSumArgs>{"row_gather_sum/cuda/wide", wide, run<true>},
    Kernel<RowGatherSumArgs>{"row_gather_sum/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<RowGatherSumArgs> row_gather_sum_cuda_kernels() { return kKernels; }

}  // namespace headrace
