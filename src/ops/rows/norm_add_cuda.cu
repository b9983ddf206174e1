// x := factor * (x + norm(scale * y)) by groups of columns on CUDA: a warp a group.
//   x, y [T, D] f32, f16 or bf16;  weight [G] f32;  sums in f32, rounded once
// A lane takes 16 bytes at a time (or one element, where rows or groups are not aligned); it reads
// what it has of y a second time, from L1.
#include <array>

#include "gpu/reduce.cuh"
#include "ops/cuda_launch.cuh"
#include "ops/rows/norm_add.h"

namespace headrace {
namespace {

constexpr int kWarps = 4;

template <class T>
struct Arguments {
  gpu::RowsOf<T> x;
  gpu::RowsOf<const T> y;
  const float* weight;  // [columns]
  int64_t groups;       // of all rows
  int32_t row_groups;   // of one
  int32_t columns;      // of a group
  float eps, scale, factor;
};

template <class T, int kWidth>
__global__ void __launch_bounds__(kWarps* gpu::kWarpThreads) add_groups(Arguments<T> args) {
  using Elements = gpu::Vector<T, kWidth>;
  constexpr int kStep = gpu::kWarpThreads * kWidth;
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int lane = static_cast<int>(threadIdx.x) % gpu::kWarpThreads;
  const int warp = static_cast<int>(threadIdx.x) / gpu::kWarpThreads;
  const int64_t group = static_cast<int64_t>(blockIdx.x) * kWarps + warp;
  if (group >= args.groups) return;
  const int64_t row = group / args.row_groups;
  const int64_t from = group % args.row_groups * args.columns;
  T* const x = args.x.row(row) + from;
  const T* const y = args.y.row(row) + from;
  float squares = 0.0f;
  for (int32_t at = lane * kWidth; at < args.columns; at += kStep) {
    const auto values = Elements::load(y + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float scaled = gpu::to_float(values.values[i]) * args.scale;
      squares += scaled * scaled;
    }
  }
  const float mean = gpu::warp_sum(squares) / static_cast<float>(args.columns);
  const float by = args.scale * rsqrtf(mean + args.eps);
  for (int32_t at = lane * kWidth; at < args.columns; at += kStep) {
    const auto values = Elements::load(y + at);
    const auto weights = gpu::Vector<float, kWidth>::load(args.weight + at);
    auto sums = Elements::load(x + at);
#pragma unroll
    for (int i = 0; i < kWidth; ++i) {
      const float normed = gpu::to_float(values.values[i]) * by * weights.values[i];
      sums.values[i] = gpu::from_float<T>((normed + gpu::to_float(sums.values[i])) * args.factor);
    }
    sums.store(x + at);
  }
}

template <bool kWide>
void run(OpContext& context, const NormAddArgs& args) {
  gpu::with_float_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    constexpr int kWidth = kWide ? gpu::kAccessBytes / static_cast<int>(sizeof(T)) : 1;
    const int64_t row_groups = args.x.columns() / args.group, groups = args.x.rows() * row_groups;
    gpu::launch(context, add_groups<T, kWidth>, gpu::blocks_for(groups, kWarps),
                kWarps * gpu::kWarpThreads,
                {.x = gpu::rows_of<T>(args.x),
                 .y = gpu::rows_of<T>(args.y),
                 .weight = args.weight,
                 .groups = groups,
                 .row_groups = static_cast<int32_t>(row_groups),
                 .columns = static_cast<int32_t>(args.group),
                 .eps = args.eps,
                 .scale = args.scale,
                 .factor = args.factor});
  });
}

bool any(const DeviceTraits& traits, const NormAddArgs& args) {
  return traits.kind == DeviceKind::kCuda && args.x.columns() <= INT32_MAX / 2;
}
bool wide(const DeviceTraits& traits, const NormAddArgs& args) {
  return any(traits, args) && gpu::whole_accesses(args.x.dtype, args.group) &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.y) &&
         gpu::multiple_of_access(args.weight);
}

constexpr std::array kKernels = {
    Kernel<NormAddArgs>{"norm_add/cuda/wide", wide, run<true>},
    Kernel<NormAddArgs>{"norm_add/cuda/any", any, run<false>},
};

}  // namespace

KernelTable<NormAddArgs> norm_add_cuda_kernels() { return kKernels; }

}  // namespace headrace
