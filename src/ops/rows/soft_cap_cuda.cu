// soft_cap on CUDA, in place: a thread an element of f32, f16 or bf16.
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/soft_cap.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;

// A NaN stays one: fminf and fmaxf would drop it.
__device__ __forceinline__ float capped(float x, float cap, CapKind kind) {
  if (kind == CapKind::kSoft) return cap * tanhf(x / cap);
  const float below = x > cap ? cap : x;
  return kind == CapKind::kClamp && below < -cap ? -cap : below;
}

template <class T>
__global__ void __launch_bounds__(kThreads)
    cap_rows(gpu::RowsOf<T> x, float cap, CapKind kind, int64_t columns, int64_t elements) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= elements) return;
  T& value = x.row(i / columns)[i % columns];
  value = gpu::from_float<T>(capped(gpu::to_float(value), cap, kind));
}

void run(OpContext& context, const SoftCapArgs& args) {
  const int64_t elements = args.x.rows() * args.x.columns();
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    gpu::launch(context, cap_rows<T>, gpu::blocks_for(elements, kThreads), kThreads,
                gpu::rows_of<T>(args.x), args.cap, args.kind, args.x.columns(), elements);
  });
}

bool any(const DeviceTraits& traits, const SoftCapArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<SoftCapArgs>{"soft_cap/cuda/any", any, run}};

}  // namespace

KernelTable<SoftCapArgs> soft_cap_cuda_kernels() { return kKernels; }

}  // namespace headrace
