// Embedding lookup on CUDA: out[t] = table[tokens[t]] * scale, one block a row.
//   tokens [T] in device memory;  table [V, D] and out [T, D] of one type: f32, f16 or bf16
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/embedding.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    look_up(const TokenId* tokens, gpu::RowsOf<const T> table, gpu::RowsOf<T> out, float scale,
            int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const T* from = table.row(tokens[blockIdx.x]);
  T* to = out.row(blockIdx.x);
  for (int64_t at = static_cast<int64_t>(threadIdx.x) * kWidth; at < columns;
       at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(from + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value.values[i] = gpu::from_float<T>(gpu::to_float(value.values[i]) * scale);
    }
    value.store(to + at);
  }
}

template <bool kWide>
void run(OpContext& context, const EmbeddingArgs& args) {
  gpu::with_float_type(args.table.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, look_up<T, kWidth>, static_cast<unsigned>(args.tokens.size()), kThreads,
                args.tokens.data(), gpu::rows_of<T>(args.table), gpu::rows_of<T>(args.out),
                args.scale, args.out.columns());
  });
}

bool any(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.table.dtype == args.out.dtype;
}
bool wide(const DeviceTraits& traits, const EmbeddingArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.table.dtype, args.table.columns()) &&
         gpu::rows_aligned(args.table) && gpu::rows_aligned(args.out);
}

constexpr std::array kKernels = {
    Kernel<EmbeddingArgs>{"embedding/cuda/wide", wide, run<true>},
    Kernel<EmbeddingArgs>{"embedding/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<EmbeddingArgs> embedding_cuda_kernels() { return kKernels; }

}  // namespace headrace
