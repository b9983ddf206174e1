// cos and sin of positions[t] * inv_freq[i] on CUDA: a thread an angle, in double as on the CPU
// (256 decode rows of 64 angles take 2 us).
#include <array>

#include "ops/cuda_launch.cuh"
#include "ops/rows/rope_angles.h"

namespace headrace {
namespace {

constexpr int kThreads = 128;

struct Arguments {
  const int32_t* positions;  // [T]
  const double* inv_freq;    // [half]
  float scale;
  gpu::RowsOf<float> cos, sin;
  int64_t half, angles;
};

__global__ void __launch_bounds__(kThreads) angles_of(Arguments args) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t i = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (i >= args.angles) return;
  const int64_t row = i / args.half, column = i % args.half;
  double cosine, sine;
  sincos(static_cast<double>(args.positions[row]) * args.inv_freq[column], &sine, &cosine);
  args.cos.row(row)[column] = static_cast<float>(cosine * args.scale);
  args.sin.row(row)[column] = static_cast<float>(sine * args.scale);
}

void run(OpContext& context, const RopeAnglesArgs& args) {
  const int64_t half = args.cos.columns(), angles = args.cos.rows() * half;
  gpu::launch(context, angles_of, gpu::blocks_for(angles, kThreads), kThreads,
              {.positions = args.positions.data(),
               .inv_freq = args.inv_freq.data(),
               .scale = args.scale,
               .cos = gpu::rows_of<float>(args.cos),
               .sin = gpu::rows_of<float>(args.sin),
               .half = half,
               .angles = angles});
}

bool any(const DeviceTraits& traits, const RopeAnglesArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<RopeAnglesArgs>{"rope_angles/cuda/any", any, run}};

}  // namespace

KernelTable<RopeAnglesArgs> rope_angles_cuda_kernels() { return kKernels; }

}  // namespace headrace
