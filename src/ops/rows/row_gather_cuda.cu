// out[i] = x[rows[i]] on CUDA: one block a row, 16 bytes a thread where rows are aligned, else 2.
// Without rows, which are null then, out[i] = x[i]. With scales products are in f32.
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

// Strides in accesses of sizeof(Access) bytes.
template <class Access>
__global__ void __launch_bounds__(kThreads)
    copy_rows(gpu::RowsOf<const Access> x, const int32_t* rows, gpu::RowsOf<Access> out,
              int64_t accesses) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const Access* from = x.row(rows == nullptr ? static_cast<int64_t>(blockIdx.x) : rows[blockIdx.x]);
  Access* to = out.row(blockIdx.x);
  for (int64_t i = threadIdx.x; i < accesses; i += kThreads) to[i] = from[i];
}

template <class Access>
void run(OpContext& context, const RowGatherArgs& args) {
  const int64_t bytes = *row_bytes(args.x.dtype, args.x.columns());
  const int32_t* const rows = args.rows.empty() ? nullptr : args.rows.data();
  gpu::launch(context, copy_rows<Access>, static_cast<unsigned>(args.out.rows()), kThreads,
              gpu::rows_of<Access>(args.x), rows, gpu::rows_of<Access>(args.out),
              bytes / static_cast<int64_t>(sizeof(Access)));
}

template <class T, int kWidth>
__global__ void __launch_bounds__(kThreads)
    copy_scaled_rows(gpu::RowsOf<const T> x, const int32_t* rows, const float* scales,
                     gpu::RowsOf<T> out, int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const T* from = x.row(rows == nullptr ? static_cast<int64_t>(blockIdx.x) : rows[blockIdx.x]);
  T* to = out.row(blockIdx.x);
  const float scale = scales[blockIdx.x];
  for (int64_t at = int64_t{threadIdx.x} * kWidth; at < columns; at += kThreads * kWidth) {
    auto value = gpu::Vector<T, kWidth>::load(from + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      value.values[i] = gpu::from_float<T>(gpu::to_float(value.values[i]) * scale);
    }
    value.store(to + at);
  }
}

template <bool kWide>
void run_scaled(OpContext& context, const RowGatherArgs& args) {
  const int32_t* const rows = args.rows.empty() ? nullptr : args.rows.data();
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    gpu::launch(context, copy_scaled_rows<T, kWidth>, static_cast<unsigned>(args.out.rows()),
                kThreads, gpu::rows_of<T>(args.x), rows, args.scales.data(),
                gpu::rows_of<T>(args.out), args.x.columns());
  });
}

bool aligned(const RowGatherArgs& args) {
  return gpu::whole_accesses(args.x.dtype, args.x.columns()) && gpu::rows_aligned(args.x) &&
         gpu::rows_aligned(args.out);
}
bool any(const DeviceTraits& traits, const RowGatherArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.scales.empty() &&
         dtype_info(args.x.dtype).block_bytes % 2 == 0;
}
bool wide(const DeviceTraits& traits, const RowGatherArgs& args) {
  return any(traits, args) && aligned(args);
}
bool any_scaled(const DeviceTraits& traits, const RowGatherArgs& args) {
  return traits.kind == DeviceKind::kCuda && !args.scales.empty();
}
bool wide_scaled(const DeviceTraits& traits, const RowGatherArgs& args) {
  return any_scaled(traits, args) && aligned(args);
}

constexpr std::array kKernels = {
    Kernel<RowGatherArgs>{"row_gather/cuda/wide", wide, run<uint4>},
    Kernel<RowGatherArgs>{"row_gather/cuda/any", any, run<uint16_t>},
    Kernel<RowGatherArgs>{"row_gather/cuda/wide_scaled", wide_scaled, run_scaled<true>},
    Kernel<RowGatherArgs>{"row_gather/cuda/any_scaled", any_scaled, run_scaled<false>},
};

}  // namespace

KernelTable<RowGatherArgs> row_gather_cuda_kernels() { return kKernels; }

}  // namespace headrace
