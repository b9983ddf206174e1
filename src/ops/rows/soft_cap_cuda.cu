// x := cap * tanh(x / cap) on CUDA, in place: x [R, V] f32, a thread an element.
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/soft_cap.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

__global__ void __launch_bounds__(kThreads)
    cap_rows(gpu::RowsOf<float> x, float cap, int64_t columns, int64_t elements) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  float& value = x.row(i / columns)[i % columns];
  value = cap * tanhf(value / cap);
}

void run(OpContext& context, const SoftCapArgs& args) {
  const int64_t elements = args.x.rows() * args.x.columns();
  gpu::launch(context, cap_rows, gpu::blocks_for(elements, kThreads), kThreads,
              gpu::rows_of<float>(args.x), args.cap, args.x.columns(), elements);
}

bool any(const DeviceTraits& traits, const SoftCapArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<SoftCapArgs>{"soft_cap/cuda/any", any, run}};

}  // namespace

KernelTable<SoftCapArgs> soft_cap_cuda_kernels() { return kKernels; }

}  // namespace headrace
