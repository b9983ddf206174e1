#include "ops/linear/blocks_wide.cuh"

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_wide.h"

namespace headrace {
namespace {

template <class T, int kType, int kTiles>
void launch(OpContext& context, const gpu::WideArguments<T>& arguments,
            const BlocksWidePlan& plan) {
  const gpu::LaunchShape shape{
      .blocks = static_cast<unsigned>(plan.x_blocks * plan.row_blocks * plan.splits),
      .threads = gpu::kBlocksWarps * gpu::kWarpThreads,
      .shared_bytes = gpu::wide_shared_bytes(kTiles),
      .cluster = plan.splits,
      .carveout = gpu::Carveout::kAllShared};
  gpu::check_launch(gpu::launch_overlapped(gpu::multiply_wide<T, kType, kTiles>, shape,
                                           gpu::stream_of(context), arguments));
}

template <class T>
void multiply_wide(OpContext& context, const LinearArgs& args) {
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const BlocksWidePlan plan =
        plan_blocks_wide(args.x.rows(), segment.group_count, args.x.columns() / 32,
                         context.device.traits().sm_count);
    const gpu::WideArguments<T> arguments{gpu::blocks_arguments<T>(args, segment),
                                          gpu::rows_of<T>(args.x), plan.x_blocks, plan.splits};
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      if (plan.tiles == 2) return launch<T, kType, 2>(context, arguments, plan);
      if (plan.tiles == 4) return launch<T, kType, 4>(context, arguments, plan);
      launch<T, kType, 8>(context, arguments, plan);
    });
  }
}

// Measured on an H200 (docs/kernels/notebook/linear.md).
constexpr int64_t kRowsMin = 9, kRowsMax = 128;

}  // namespace

bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_fit(traits, args) && traits.compute_capability == 90 && !traits.batch_invariant &&
         gpu::rows_aligned(args.x);
}

bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_wide_fit(traits, args) && args.x.rows() >= kRowsMin && args.x.rows() <= kRowsMax;
}

void run_blocks_wide(OpContext& context, const LinearArgs& args) {
  gpu::with_half_type(args.x.dtype,
                      [&]<class T>(gpu::ElementType<T>) { multiply_wide<T>(context, args); });
}

}  // namespace headrace
