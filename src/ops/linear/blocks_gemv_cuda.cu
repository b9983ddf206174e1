#include "ops/linear/blocks_gemv.cuh"

#include "ops/linear/blocks.h"

namespace headrace {

namespace {

LinearArgs product(const FusedLinearArgs& args) {
  return {
      .x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y, .output = args.output};
}

bool norm_fits(const FusedLinearArgs& args) {
  return args.norm == nullptr || (args.norm->residual.data == nullptr && args.norm->groups == 1 &&
                                  gpu::multiple_of_access(args.norm->weight));
}
// A group of gate and one of up are of one segment.
bool gate_fits(const FusedLinearArgs& args) {
  return args.gate == nullptr ||
         (args.weight->segments().size() == 1 && args.weight->n() % (2 * kLinearGroupRows) == 0);
}

}  // namespace

bool blocks_gemv_fits(const DeviceTraits& traits, const FusedLinearArgs& args) {
  if (!blocks_fit(traits, product(args)) || traits.compute_capability != 90 ||
      traits.batch_invariant || args.x.rows() > kBlocksGemvRowsMax || !gpu::rows_aligned(args.x) ||
      !norm_fits(args) || !gate_fits(args)) {
    return false;
  }
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    if (plan_blocks_gemv(product_of(args), segment, traits.sm_count).blocks == 0) return false;
  }
  return true;
}

// Measured on an H200 with Q4_K (docs/kernels/notebook/linear.md): of few rows of W and four of x
// `blocks` is ahead.
bool blocks_gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args) {
  constexpr int64_t kSmall = 20'000'000;
  return blocks_gemv_fits(traits, args) &&
         (args.x.rows() < 4 || args.weight->n() * args.weight->k() >= kSmall);
}
// Every block normalises all rows for itself, which is ahead of a kernel for it with one row; gates
// with three. With five and more `blocks_wide` is ahead, which has nothing behind it.
bool fused_blocks_gemv_pays(const DeviceTraits& traits, const FusedLinearArgs& args) {
  const int64_t rows_max = args.norm != nullptr ? 1 : args.gate != nullptr ? 3 : 4;
  return blocks_gemv_pays(traits, args) && args.x.rows() <= rows_max;
}

void run_blocks_gemv(OpContext& context, const FusedLinearArgs& args) {
  gpu::with_half_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    for (const LinearWeight::Segment& segment : args.weight->segments()) {
      const gpu::BlocksGemvArguments<T> arguments{
          .common = gpu::blocks_arguments<T>(product(args), segment),
          .x = gpu::rows_of<T>(args.x),
          .norm = args.norm == nullptr ? nullptr : args.norm->weight,
          .eps = args.norm == nullptr ? 0.0f : args.norm->eps,
          .gated = args.gate != nullptr,
          .activation = args.gate == nullptr ? Activation::kSilu : *args.gate,
          .plan = plan_blocks_gemv(product_of(args), segment, context.device.traits().sm_count)};
      const gpu::LaunchShape shape{
          .blocks = static_cast<unsigned>(arguments.plan.blocks),
          .threads = kBlocksGemvWarps * gpu::kWarpThreads,
          .shared_bytes = kBlocksGemvBarrierBytes + arguments.plan.shared_bytes,
          .carveout = gpu::Carveout::kAllShared};
      gpu::with_block_type(segment.dtype, [&]<int kType>() {
        const auto launch = [&](auto* kernel) {
          gpu::check_launch(context.stream, gpu::launch_overlapped(
                                                kernel, shape, gpu::stream_of(context), arguments));
        };
        if (args.x.rows() == 1) {
          launch(&gpu::blocks_gemv<T, kType, 1>);
        } else {
          launch(&gpu::blocks_gemv<T, kType, kBlocksGemvRowsMax>);
        }
      });
    }
  });
}

}  // namespace headrace
