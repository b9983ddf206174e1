// linear for shapes that nothing else takes: a warp an element of y.
#include "gpu/float8.cuh"
#include "gpu/reduce.cuh"
#include "ops/linear/float8.h"
#include "ops/linear/plain.cuh"
#include "ops/linear/plain.h"

namespace headrace {
namespace {

constexpr int kAnyWarps = 4;

// W [N, K] of x's type, or FP8 with a scale a row.
template <class T, class Y, class W>
__global__ void __launch_bounds__(kAnyWarps* gpu::kWarpThreads)
    any_element(gpu::PlainArguments<T, Y> args, const W* matrix, const float* scales) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int64_t element = static_cast<int64_t>(blockIdx.x) * kAnyWarps +
                          static_cast<int64_t>(threadIdx.x) / gpu::kWarpThreads;
  if (element >= static_cast<int64_t>(args.m) * args.n) return;
  const auto row = static_cast<int32_t>(element / args.n);
  const auto column = static_cast<int32_t>(element % args.n);
  const T* x = args.x.row(row);
  const W* weight = matrix + static_cast<int64_t>(column) * args.k;
  float sum = 0.0f;
  for (int32_t i = lane; i < args.k; i += gpu::kWarpThreads) {
    sum = fmaf(gpu::to_float(x[i]), gpu::to_float(weight[i]), sum);
  }
  sum = gpu::warp_sum(sum);
  if (scales != nullptr) sum *= scales[column];
  if (lane == 0) gpu::finish_plain(args, row, column, sum);
}

}  // namespace

bool linear_any_fits(const DeviceTraits& traits, const LinearArgs& args) {
  return gpu::plain_types(traits, args) || float8_types(traits, args);
}

void run_linear_any(OpContext& context, const LinearArgs& args) {
  gpu::with_plain_types(args, [&]<class T, class Y>(const gpu::PlainArguments<T, Y>& arguments) {
    const int64_t elements = int64_t{arguments.m} * arguments.n;
    const auto start = [&]<class W>(const W* matrix) {
      gpu::launch(context, any_element<T, Y, W>, gpu::blocks_for(elements, kAnyWarps),
                  kAnyWarps * gpu::kWarpThreads, arguments, matrix, args.weight->row_scales());
    };
    if (args.weight->is_matrix_of(DType::kF8)) {
      return start(reinterpret_cast<const __nv_fp8_e4m3*>(args.weight->matrix().data));
    }
    start(arguments.weight);
  });
}

}  // namespace headrace
