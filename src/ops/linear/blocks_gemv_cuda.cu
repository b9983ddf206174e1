#include "ops/linear/blocks_gemv.cuh"

#include "ops/linear/blocks.h"

namespace headrace {

bool blocks_gemv_fits(const DeviceTraits& traits, const LinearArgs& args) {
  if (!blocks_fit(traits, args) || traits.compute_capability != 90 || traits.batch_invariant ||
      args.x.rows() > kBlocksGemvRowsMax || !gpu::rows_aligned(args.x)) {
    return false;
  }
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const BlocksGemvPlan plan =
        plan_blocks_gemv(args.x.rows(), args.weight->k(), segment, traits.sm_count);
    if (plan.blocks == 0) return false;
  }
  return true;
}

// Measured on an H200 with Q4_K (docs/kernels/notebook/linear.md): of few rows of W and four of x
// `blocks` is ahead.
bool blocks_gemv_pays(const DeviceTraits& traits, const LinearArgs& args) {
  constexpr int64_t kSmall = 20'000'000;
  return blocks_gemv_fits(traits, args) &&
         (args.x.rows() < 4 || args.weight->n() * args.weight->k() >= kSmall);
}

void run_blocks_gemv(OpContext& context, const LinearArgs& args) {
  gpu::with_half_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    for (const LinearWeight::Segment& segment : args.weight->segments()) {
      const gpu::BlocksGemvArguments<T> arguments{
          .common = gpu::blocks_arguments<T>(args, segment),
          .x = gpu::rows_of<T>(args.x),
          .plan = plan_blocks_gemv(args.x.rows(), args.weight->k(), segment,
                                   context.device.traits().sm_count)};
      const gpu::LaunchShape shape{.blocks = static_cast<unsigned>(arguments.plan.blocks),
                                   .threads = kBlocksGemvWarps * gpu::kWarpThreads,
                                   .shared_bytes = arguments.plan.shared_bytes,
                                   .carveout = gpu::Carveout::kAllShared};
      gpu::with_block_type(segment.dtype, [&]<int kType>() {
        constexpr bool kMinimum = gpu::kFormat<kType>.minimum;
        const auto launch = [&](auto* kernel) {
          gpu::check_launch(context.stream, gpu::launch_overlapped(
                                                kernel, shape, gpu::stream_of(context), arguments));
        };
        if (kMinimum && args.x.rows() == 1) {
          launch(&gpu::blocks_gemv < T, kType, kMinimum ? 1 : kBlocksGemvRowsMax >);
        } else {
          launch(&gpu::blocks_gemv<T, kType, kBlocksGemvRowsMax>);
        }
      });
    }
  });
}

}  // namespace headrace
