#include "ops/linear/blocks_tiles.cuh"

#include <algorithm>

#include "ops/linear/blocks.h"

namespace headrace {
namespace {

template <int kType, int kTiles>
void launch(OpContext& context, gpu::TilesArguments arguments) {
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

template <class T, bool kNormed>
StagedRows stage_rows(OpContext& context, const ConstTensorView& x, const RmsNormArgs* norm,
                      const LinearWeight& weight) {
  const int32_t sm_count = context.device.traits().sm_count;
  const BlocksWideRows rows = blocks_tiles_rows(x.rows(), weight, sm_count);
  std::byte* const out = context.workspace.take(rows.bytes);
  const int32_t tiles = rows.x_blocks * rows.tiles;  // of 8 rows, those past the end too
  auto* const factors = reinterpret_cast<float*>(out + rows.bytes) - 8 * tiles;
  // Two blocks a multiprocessor at least, of those that have something to do.
  const int32_t pieces = rows.steps * 2 * kWideStepChunks;
  int32_t cluster = 1;
  while (cluster < gpu::kTileRowsClusterMax && tiles * cluster < 2 * sm_count &&
         pieces > cluster * gpu::kTileRowsPieces) {
    cluster *= 2;
  }
  const TensorView read(const_cast<std::byte*>(x.data), x.dtype, x.shape, x.row_stride);
  gpu::TileRowsArguments<T> arguments{.x = gpu::rows_of<T>(read),
                                      .residual = {},
                                      .norm = nullptr,
                                      .out = out,
                                      .factors = factors,
                                      .m = static_cast<int32_t>(x.rows()),
                                      .chunks = static_cast<int32_t>(x.columns() / 32),
                                      .steps = rows.steps,
                                      .tiles = rows.tiles,
                                      .cluster = cluster,
                                      .eps = 0.0f,
                                      .residual_scale = 1.0f};
  if (norm != nullptr) {
    arguments.residual = gpu::rows_of<T>(norm->residual);
    arguments.norm = norm->weight;
    arguments.eps = norm->eps;
    arguments.residual_scale = norm->residual_scale;
  }
  const gpu::LaunchShape shape{.blocks = static_cast<unsigned>(tiles * cluster),
                               .threads = gpu::kTileRowsThreads,
                               .cluster = cluster};
  gpu::check_launch(context.stream, gpu::launch_overlapped(gpu::stage_tile_rows<T, kNormed>, shape,
                                                           gpu::stream_of(context), arguments));
  return {rows, out, factors};
}

// `norm`: what is done to x's rows before, or null.
void multiply_slab(OpContext& context, const LinearArgs& args, const RmsNormArgs* norm) {
  const LinearWeight& weight = *args.weight;
  const Workspace::Mark mark(context.workspace);
  StagedRows staged{};
  gpu::with_half_type(args.x.dtype, [&]<class T>(gpu::ElementType<T>) {
    staged = norm == nullptr ? stage_rows<T, false>(context, args.x, nullptr, weight)
                             : stage_rows<T, true>(context, norm->x, norm, weight);
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
      if (staged.rows.tiles == 16) return launch<kType, 16>(context, arguments);
      launch<kType, 32>(context, arguments);
    });
  }
}

// In slabs of rows.
void multiply(OpContext& context, const LinearArgs& args, const RmsNormArgs* norm) {
  const int64_t slab_rows = blocks_tiles_slab(*args.weight);
  for (int64_t first = 0; first < args.x.rows(); first += slab_rows) {
    const int64_t count = std::min(slab_rows, args.x.rows() - first);
    LinearArgs slab = args;
    slab.x = args.x.row_range(first, count);
    slab.y = args.y.row_range(first, count);
    if (norm == nullptr) {
      multiply_slab(context, slab, nullptr);
      continue;
    }
    RmsNormArgs of_slab = *norm;
    of_slab.x = norm->x.row_range(first, count);
    if (norm->residual.data != nullptr) of_slab.residual = norm->residual.row_range(first, count);
    multiply_slab(context, slab, &of_slab);
  }
}

bool norm_fits(const RmsNormArgs& norm) {
  return norm.groups == 1 && gpu::rows_aligned(norm.x) && gpu::rows_aligned(norm.residual) &&
         gpu::multiple_of_access(norm.weight);
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
  multiply(context, args, nullptr);
}

bool norm_blocks_tiles_fit(const DeviceTraits& traits, const NormLinearArgs& args) {
  return blocks_tiles_pay(traits, args.linear) && norm_fits(args.norm);
}
void run_norm_blocks_tiles(OpContext& context, const NormLinearArgs& args) {
  multiply(context, args.linear, &args.norm);
}

bool norm_gated_blocks_tiles_fit(const DeviceTraits& traits, const NormGatedLinearArgs& args) {
  return blocks_tiles_pay(traits, gate_up_product(args.gated)) && norm_fits(args.norm);
}
// The activation is an op of its own: at the end of tiles it has taken longer than it saves.
void run_norm_gated_blocks_tiles(OpContext& context, const NormGatedLinearArgs& args) {
  multiply(context, gate_up_product(args.gated), &args.norm);
  activate_gate_up(context, args.gated);
}

}  // namespace headrace
