// Queries times a factor of their position and weights of a head's components on CUDA: one block a
// row, in place.
//   x [T, Hq d] f32, f16 or bf16;  weights [d] f32;  products in f32
// A thread takes 16 bytes at a time (or one element, where rows or heads are not aligned).
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/scale_queries.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

template <class T>
struct Arguments {
  gpu::RowsOf<T> x;
  const int32_t* positions;  // [T]; not read without a temperature
  const float* weights;      // [head_dim] or null
  QueryTemperature temperature;
  int32_t columns, head_dim;
};

__device__ __forceinline__ float factor_of(const QueryTemperature& rule, int32_t position) {
  const int32_t steps = (position + rule.offset) / rule.step;
  if (rule.smooth && steps > 0) {
    const float share = static_cast<float>(position + rule.offset) / static_cast<float>(rule.step);
    return 1.0f + rule.scale * logf(share);
  }
  return steps == 0 ? 1.0f : 1.0f + rule.scale * logf(1.0f + static_cast<float>(steps));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads) scale_row(Arguments<T> args) {
  using Weights = gpu::Vector<float, kWidth>;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  float factor = 1.0f;
  if (args.temperature.scale != 0.0f) {
    factor = factor_of(args.temperature, args.positions[blockIdx.x]);
  }
  if (factor == 1.0f && args.weights == nullptr) return;
  T* const row = args.x.row(blockIdx.x);
  for (int32_t at = static_cast<int32_t>(threadIdx.x) * kWidth; at < args.columns;
       at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(row + at);
    Weights weights;
    if (args.weights != nullptr) weights = Weights::load(args.weights + at % args.head_dim);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float by = args.weights != nullptr ? factor * weights.values[i] : factor;
      value.values[i] = gpu::from_float<T>(gpu::to_float(value.values[i]) * by);
    }
    value.store(row + at);
  }
}

template <bool kWide>
void run(OpContext& context, const ScaleQueriesArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, scale_row<T, kWidth>, static_cast<unsigned>(args.x.rows()), kThreads,
                {.x = gpu::rows_of<T>(args.x),
                 .positions = args.positions.data(),
                 .weights = args.weights,
                 .temperature = args.temperature,
                 .columns = static_cast<int32_t>(args.x.columns()),
                 .head_dim = args.head_dim});
  });
}

bool any(const DeviceTraits& traits, const ScaleQueriesArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2;
}
// A head is whole accesses, so that none lies in two.
bool wide(const DeviceTraits& traits, const ScaleQueriesArgs& args) {
  const int64_t part = args.weights != nullptr ? args.head_dim : args.x.columns();
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, part) &&
         gpu::rows_aligned(args.x) && gpu::multiple_of_access(args.weights);
}

constexpr std::array kKernels = {
    Kernel<ScaleQueriesArgs>{"scale_queries/cuda/wide", wide, run<true>},
    Kernel<ScaleQueriesArgs>{"scale_queries/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<ScaleQueriesArgs> scale_queries_cuda_kernels() { return kKernels; }

}  // namespace headrace
