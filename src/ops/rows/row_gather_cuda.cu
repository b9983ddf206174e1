// out[i] = x[rows[i]] on CUDA: one block a row, 16 bytes a thread where rows are aligned, else 2.
// Without rows, which are null then, out[i] = x[i].
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

bool any(const DeviceTraits& traits, const RowGatherArgs& args) {
  return traits.kind == DeviceKind::kCuda && dtype_info(args.x.dtype).block_bytes % 2 == 0;
}
bool wide(const DeviceTraits& traits, const RowGatherArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.x.columns()) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.out);
}

constexpr std::array kKernels = {
    Kernel<RowGatherArgs>{"row_gather/cuda/wide", wide, run<uint4>},
    Kernel<RowGatherArgs>{"row_gather/cuda/any", any, run<uint16_t>},
};

}  // namespace

KernelTable<RowGatherArgs> row_gather_cuda_kernels() { return kKernels; }

}  // namespace headrace
