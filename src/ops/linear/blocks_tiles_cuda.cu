#include "ops/linear/blocks_tiles.cuh"

#include <algorithm>

#include "ops/linear/blocks.h"

namespace headrace {
namespace {

template <int kType, int kTiles>
void launch_product(OpContext& context, gpu::TilesArguments arguments) {
  arguments.scale = 1.0f / gpu::WideScales<kType, false>::kRaised;
  const BlocksTilesPlan& plan = arguments.plan;
  const int32_t cluster = plan.sharers * plan.splits;
  const gpu::LaunchShape shape{.blocks = static_cast<unsigned>(plan.clusters * cluster),
                               .threads = gpu::kTilesThreads,
                               .shared_bytes = plan.shared_bytes,
                               .cluster = cluster,
                               .carveout = gpu::Carveout::kAllShared};
  gpu::check_launch(context.stream,
                    gpu::launch_overlapped(gpu::multiply_tiles<kType, kTiles>, shape,
                                           gpu::stream_of(context), arguments));
}

// The columns of y that are the segment's rows.
gpu::TilesOutput output_of(const LinearArgs& args, const LinearWeight::Segment& segment) {
  const TensorView& y = args.y;
  const int64_t bytes = dtype_info(y.dtype).block_bytes;
  std::byte* const data = y.data + segment.first_row * bytes;
  const bool pairs =
      reinterpret_cast<uintptr_t>(data) % (2 * bytes) == 0 && y.row_stride % (2 * bytes) == 0;
  return {.data = data,
          .stride = y.row_stride,
          .dtype = y.dtype,
          .pairs = pairs,
          .accumulates = args.output == LinearOutput::kAccumulate,
          .columns = static_cast<int32_t>(segment.row_count)};
}

// Rows of x in scratch memory, as the kernel multiplies them.
struct StagedRows {
  BlocksWideRows rows;
  const std::byte* x;
  const float* factors;
};

// `source`: rows, or the arguments of the op that makes them.
template <class T, class Source>
StagedRows stage_rows(OpContext& context, const Source& source, const LinearWeight& weight) {
  constexpr gpu::RowsOfX kSource = gpu::kRowsOf<Source>;
  constexpr int32_t kPiece = 16;  // columns of a thread
  const gpu::MadeRows<T> made = gpu::made_rows<T>(source);
  const BlocksWideRows rows = blocks_tiles_rows(made.m, weight, context.device.traits().sm_count);
  std::byte* const out = context.workspace.take(rows.bytes);
  const int32_t rows_of_tiles = 8 * rows.x_blocks * rows.tiles;
  auto* const factors = reinterpret_cast<float*>(out + rows.bytes) - rows_of_tiles;
  const int32_t columns = rows.steps * kWideStepChunks * 32;
  const int32_t threads =
      std::min(gpu::kTileRowsThreads<kSource>, gpu::kTileRowsOfBlock * columns / kPiece);
  gpu::launch(
      context, gpu::stage_tile_rows<T, kSource>, gpu::blocks_for(made.m, gpu::kTileRowsOfBlock),
      threads,
      {.rows = made, .out = out, .factors = factors, .steps = rows.steps, .tiles = rows.tiles});
  return {rows, out, factors};
}

template <class Source>
void multiply_slab(OpContext& context, const LinearArgs& args, const Source& source) {
  const LinearWeight& weight = *args.weight;
  const Workspace::Mark mark(context.workspace);
  StagedRows staged{};
  gpu::with_half_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    staged = stage_rows<T>(context, source, weight);
  });
  for (const LinearWeight::Segment& segment : weight.segments()) {
    const gpu::TilesArguments arguments{
        .weight = gpu::packed_segment(segment, weight.k()),
        .bias = args.bias == nullptr ? nullptr : args.bias + segment.first_row,
        .y = output_of(args, segment),
        .m = static_cast<int32_t>(args.x.rows()),
        .groups = static_cast<int32_t>(segment.group_count),
        .scale = 1.0f,
        .x = staged.x,
        .factors = staged.factors,
        .rows = staged.rows,
        .plan = plan_blocks_tiles(staged.rows, segment, context.device.traits().sm_count)};
    gpu::with_block_type(segment.dtype, [&]<int kType>() {
      if (staged.rows.tiles == 16) return launch_product<kType, 16>(context, arguments);
      launch_product<kType, 32>(context, arguments);
    });
  }
}

ConstTensorView rows_of_slab(const ConstTensorView& x, int64_t first, int64_t count) {
  return x.row_range(first, count);
}
RmsNormArgs rows_of_slab(RmsNormArgs norm, int64_t first, int64_t count) {
  norm.x = norm.x.row_range(first, count);
  if (norm.residual.data != nullptr) norm.residual = norm.residual.row_range(first, count);
  return norm;
}
GatedActivationArgs rows_of_slab(GatedActivationArgs gates, int64_t first, int64_t count) {
  gates.gate_up = gates.gate_up.row_range(first, count);
  return gates;
}

// In slabs of rows.
template <class Source>
void multiply(OpContext& context, const LinearArgs& args, const Source& source) {
  const int64_t slab_rows = blocks_tiles_slab(*args.weight);
  for (int64_t first = 0; first < args.x.rows(); first += slab_rows) {
    const int64_t count = std::min(slab_rows, args.x.rows() - first);
    LinearArgs slab = args;
    slab.x = args.x.row_range(first, count);
    slab.y = args.y.row_range(first, count);
    multiply_slab(context, slab, rows_of_slab(source, first, count));
  }
}

}  // namespace

bool blocks_tiles_fit(const DeviceTraits& traits, const LinearArgs& args) {
  return blocks_wide_fit(traits, args);
}

// Measured on an H200 with Q4_K (docs/kernels/notebook/linear.md): with fewer rows `blocks_wide` is
// ahead, with more `unpacked`.
bool blocks_tiles_pay(const DeviceTraits& traits, const LinearArgs& args) {
  constexpr int64_t kRowsMin = 65, kRowsMax = 2048;
  return blocks_tiles_fit(traits, args) && args.x.rows() >= kRowsMin && args.x.rows() <= kRowsMax;
}

void run_blocks_tiles(OpContext& context, const LinearArgs& args) {
  multiply(context, args, args.x);
}

bool norm_blocks_tiles_fit(const DeviceTraits& traits, const NormLinearArgs& args) {
  return blocks_tiles_pay(traits, args.linear) && gpu::norm_fits_made_rows(args.norm);
}
void run_norm_blocks_tiles(OpContext& context, const NormLinearArgs& args) {
  multiply(context, args.linear, args.norm);
}

bool norm_gated_blocks_tiles_fit(const DeviceTraits& traits, const NormGatedLinearArgs& args) {
  return blocks_tiles_pay(traits, gate_up_product(args.gated)) &&
         gpu::norm_fits_made_rows(args.norm);
}
// The activation is an op of its own: at the end of tiles it has taken longer than it saves.
void run_norm_gated_blocks_tiles(OpContext& context, const NormGatedLinearArgs& args) {
  multiply(context, gate_up_product(args.gated), args.norm);
  activate_gate_up(context, args.gated);
}

bool activated_blocks_tiles_fit(const DeviceTraits& traits, const ActivatedLinearArgs& args) {
  return blocks_tiles_pay(traits, args.linear) && gpu::gates_fit_made_rows(args.gates);
}
void run_activated_blocks_tiles(OpContext& context, const ActivatedLinearArgs& args) {
  multiply(context, args.linear, args.gates);
}

}  // namespace headrace
