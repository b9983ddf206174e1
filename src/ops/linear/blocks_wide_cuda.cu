#include "ops/linear/blocks_wide.cuh"

#include <algorithm>

#include "ops/linear/blocks.h"
#include "ops/linear/blocks_wide.h"

namespace headrace {
namespace {

template <class T, int kType, int kTiles>
void launch(OpContext& context, const gpu::WideArguments<T>& arguments) {
  const BlocksWidePlan& plan = arguments.plan;
  const gpu::LaunchShape shape{.blocks = static_cast<unsigned>(plan.blocks * plan.splits),
                               .threads = gpu::kWideThreads,
                               .shared_bytes = plan.shared_bytes,
                               .cluster = plan.splits,
                               .carveout = gpu::Carveout::kAllShared};
  gpu::check_launch(context.stream,
                    gpu::launch_overlapped(gpu::multiply_wide<T, kType, kTiles>, shape,
                                           gpu::stream_of(context), arguments));
}

// `source`: rows, or the arguments of the op that makes them.
template <class T, class Source>
void multiply_made(OpContext& context, const LinearArgs& args, const Source& source) {
  constexpr gpu::RowsOfX kSource = gpu::kRowsOf<Source>;
  const Workspace::Mark mark(context.workspace);
  const BlocksWideRows rows = blocks_wide_rows(args.x.rows(), *args.weight);
  std::byte* const x = context.workspace.take(rows.bytes);
  const int32_t staged = rows.x_blocks * 8 * rows.tiles;  // those past the end too
  auto* const factors = reinterpret_cast<float*>(x + rows.bytes) - staged;
  const int32_t threads = std::min(rows.steps * gpu::kWarpThreads, gpu::kWideRowThreads);
  gpu::launch(context, gpu::stage_wide_rows<T, kSource>, static_cast<unsigned>(staged), threads,
              {.rows = gpu::made_rows<T>(source),
               .out = x,
               .factors = factors,
               .steps = rows.steps,
               .tiles = rows.tiles});
  for (const LinearWeight::Segment& segment : args.weight->segments()) {
    const gpu::WideArguments<T> arguments{
        gpu::blocks_arguments<T>(args, segment), x, factors, rows,
        plan_blocks_wide(rows, segment, context.device.traits().sm_count)};
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      if (rows.tiles == 2) return launch<T, kType, 2>(context, arguments);
      if (rows.tiles == 4) return launch<T, kType, 4>(context, arguments);
      launch<T, kType, 8>(context, arguments);
    });
  }
}

template <class Source>
void multiply(OpContext& context, const LinearArgs& args, const Source& source) {
  gpu::with_half_type(
      args.x.dtype, [&]<class T>(gpu::ElementType<T>) { multiply_made<T>(context, args, source); });
}

}  // namespace

bool blocks_wide_fit(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_fit(traits, args) && traits.compute_capability == 90 && !traits.batch_invariant &&
         gpu::rows_aligned(args.x) && args.x.columns() >= 32 * kWideStepChunks;
}

// Measured on an H200 with Q4_K (docs/kernels/notebook/linear.md): of up to 8 rows
// `blocks_gemv` and `blocks` are ahead but where W is large.
bool blocks_wide_pay(const DeviceTraits& traits, const LinearArgs& args) {
  constexpr int64_t kMiddling = 20'000'000, kLarge = 50'000'000;
  if (!blocks_wide_fit(traits, args)) return false;
  const int64_t m = args.x.rows();
  if (m <= 8) return m > 4 && args.weight->n() * args.weight->k() >= (m > 6 ? kMiddling : kLarge);
  return m <= kBlocksWideRowsMax;
}

// Scratch memory is planned for so many rows.
void run_blocks_wide(OpContext& context, const LinearArgs& args) {
  for (int64_t first = 0; first < args.x.rows(); first += kBlocksWideRowsMax) {
    const int64_t count = std::min(kBlocksWideRowsMax, args.x.rows() - first);
    LinearArgs slab = args;
    slab.x = args.x.row_range(first, count);
    slab.y = args.y.row_range(first, count);
    multiply(context, slab, slab.x);
  }
}

bool norm_blocks_wide_fit(const DeviceTraits& traits, const NormLinearArgs& args) {
  return blocks_wide_pay(traits, args.linear) && gpu::norm_fits_made_rows(args.norm);
}
void run_norm_blocks_wide(OpContext& context, const NormLinearArgs& args) {
  multiply(context, args.linear, args.norm);
}

bool norm_gated_blocks_wide_fit(const DeviceTraits& traits, const NormGatedLinearArgs& args) {
  return blocks_wide_pay(traits, gate_up_product(args.gated)) &&
         gpu::norm_fits_made_rows(args.norm);
}
void run_norm_gated_blocks_wide(OpContext& context, const NormGatedLinearArgs& args) {
  multiply(context, gate_up_product(args.gated), args.norm);
  activate_gate_up(context, args.gated);
}

bool activated_blocks_wide_fit(const DeviceTraits& traits, const ActivatedLinearArgs& args) {
  return blocks_wide_pay(traits, args.linear) && gpu::gates_fit_made_rows(args.gates);
}
void run_activated_blocks_wide(OpContext& context, const ActivatedLinearArgs& args) {
  multiply(context, args.linear, args.gates);
}

}  // namespace headrace
