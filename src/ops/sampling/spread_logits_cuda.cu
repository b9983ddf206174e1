// Logits over all ids on CUDA: -infinity everywhere, then a thread a logit.
#include <array>
#include <limits>

#include "ops/cuda_launch.cuh"
#include "ops/sampling/spread_logits.h"

namespace headrace {
namespace {

constexpr int kThreads = 256;
constexpr int kFilledByThread = 8;

__global__ void __launch_bounds__(kThreads)
    fill_rows(gpu::RowsOf<float> all, float value, int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  float* const row = all.row(blockIdx.y);
  const int64_t first = static_cast<int64_t>(blockIdx.x) * kThreads * kFilledByThread + threadIdx.x;
  for (int i = 0; i < kFilledByThread; ++i) {
    const int64_t c = first + static_cast<int64_t>(i) * kThreads;
    if (c < columns) row[c] = value;
  }
}

__global__ void __launch_bounds__(kThreads)
    scatter_rows(gpu::RowsOf<const float> logits, const TokenId* ids, gpu::RowsOf<float> all,
                 int64_t columns) {
  gpu::let_next_kernel_start();
  gpu::wait_for_earlier_kernels();
  const int64_t c = static_cast<int64_t>(blockIdx.x) * kThreads + threadIdx.x;
  if (c >= columns) return;
  all.row(blockIdx.y)[ids == nullptr ? c : static_cast<int64_t>(ids[c])] =
      logits.row(blockIdx.y)[c];
}

void run(OpContext& context, const SpreadLogitsArgs& args) {
  const auto rows = static_cast<unsigned>(args.all.rows());
  const dim3 fills(gpu::blocks_for(args.all.columns(), kThreads * kFilledByThread), rows);
  const dim3 moves(gpu::blocks_for(args.logits.columns(), kThreads), rows);
  gpu::launch(context, fill_rows, fills, kThreads, gpu::rows_of<float>(args.all),
              -std::numeric_limits<float>::infinity(), args.all.columns());
  if (args.logits.columns() == 0) return;
  gpu::launch(context, scatter_rows, moves, kThreads, gpu::rows_of<float>(args.logits), args.ids,
              gpu::rows_of<float>(args.all), args.logits.columns());
}

bool any(const DeviceTraits& traits, const SpreadLogitsArgs&) {
  return traits.kind == DeviceKind::kCuda;
}

constexpr std::array kKernels = {Kernel<SpreadLogitsArgs>{"spread_logits/cuda/any", any, run}};

}  // namespace

KernelTable<SpreadLogitsArgs> spread_logits_cuda_kernels() { return kKernels; }

}  // namespace headrace
