#include "ops/linear/blocks_wide.cuh"

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_wide.h"

namespace headrace {
namespace {

template <class T, int kType, int kTiles>
void launch(OpContext& context, const gpu::WideArguments<T>& arguments,
            const BlocksWidePlan& plan) {
  const gpu::LaunchShape shape{.blocks = static_cast<unsigned>(plan.blocks * plan.splits),
                               .threads = gpu::kBlocksWarps * gpu::kWarpThreads,
                               .shared_bytes = gpu::wide_shared_bytes(kTiles),
                               .cluster = plan.splits,
                               .carveout = gpu::Carveout::kAllShared};
  gpu::check_launch(gpu::launch_overlapped(gpu::multiply_wide<T, kType, kTiles>, shape,
                                           gpu::stream_of(context), arguments));
}

template <class T>
void multiply_wide(OpContext& context, const LinearArgs& args) {
  const Workspace::Mark mark(context.workspace);
  const int64_t m = args.x.rows();
  const BlocksWideRows rows = blocks_wide_rows(m, *args.weight);
  std::byte* const x = context.workspace.take(rows.bytes);
  const int32_t staged = rows.x_blocks * 8 * rows.tiles;  // those past the end too
  auto* const factors = reinterpret_cast<float*>(x + rows.bytes) - staged;
  gpu::launch(context, gpu::stage_rows<T>, static_cast<unsigned>(staged), gpu::kStageRowsThreads,
              gpu::StageRowsArguments<T>{gpu::rows_of<T>(args.x), reinterpret_cast<uint4*>(x),
                                         factors, static_cast<int32_t>(m),
                                         static_cast<int32_t>(args.x.columns() / 32), rows.chunks,
                                         rows.tiles});
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const BlocksWidePlan plan =
        plan_blocks_wide(rows, segment.group_count, context.device.traits().sm_count);
    const gpu::WideArguments<T> arguments{gpu::blocks_arguments<T>(args, segment),
                                          x,
                                          factors,
                                          rows.chunks,
                                          rows.x_blocks,
                                          plan.splits};
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      if (rows.tiles == 2) return launch<T, kType, 2>(context, arguments, plan);
      if (rows.tiles == 4) return launch<T, kType, 4>(context, arguments, plan);
      launch<T, kType, 8>(context, arguments, plan);
    });
  }
}

}  // namespace

bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_fit(traits, args) && traits.compute_capability == 90 && !traits.batch_invariant &&
         gpu::rows_aligned(args.x);
}

// Measured on an H200 with Q4_K (docs/kernels/notebook/linear.md): up to 32 rows `blocks` is ahead
// where W has few rows, from 65 on `unpacked`.
bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args) {
  if (!blocks_wide_fit(traits, args)) return false;
  const int64_t m = args.x.rows();
  const int64_t groups_of_each = args.weight->n() / kLinearGroupRows / traits.sm_count;
  if (m <= 16) return m > 8 && groups_of_each >= 8;
  return m <= kBlocksWideRowsMax && (groups_of_each >= 2 || (m > 32 && m <= 64));
}

void run_blocks_wide(OpContext& context, const LinearArgs& args) {
  gpu::with_half_type(args.x.dtype,
                      [&]<class T>(gpu::ElementType<T>) { multiply_wide<T>(context, args); });
}

}  // namespace headrace
