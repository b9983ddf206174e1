#include <algorithm>
#include <array>

#include "ops/linear/gated_linear.h"
#include "ops/linear/gemv.h"
#include "ops/linear/resident.h"
#include "ops/linear/stream.cuh"
#include "ops/linear/wgmma.h"
#include "ops/tensor_map.cuh"

namespace headrace {
namespace {

using gpu::StreamArguments;

// 26 MB on the way over 132 blocks: with half of that, blocks that ask and wait in step read 2.6
// TB/s.
constexpr int32_t kRingBytes = 200 << 10;
constexpr int32_t kStagesMin = 3;
constexpr int32_t kSharedMax = 227 << 10;

constexpr int32_t kTileRows[] = {128, 112, 96, 64};
constexpr int32_t kSplits[] = {1, 2};  // clusters of four were slower

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

template <class T>
CUtensorMap matrix_map(DType dtype, const T* base, int64_t rows, int64_t columns, int64_t row_bytes,
                       int32_t box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {gpu::kStreamColumns, static_cast<cuuint32_t>(box_rows)};
  return gpu::make_tensor_map({dtype, base, sizes, strides, box, gpu::kStreamColumns});
}

// Rows [first, first + count) of x.
template <class T, int kTile, int kGroups>
void launch_rows(OpContext& context, const StreamArgs& args, const StreamPlan& plan, int64_t first,
                 int64_t count) {
  using Shape = gpu::StreamShape<kTile, kGroups>;
  const LinearArgs& linear = args.linear;
  const bool gated = args.gate != nullptr;
  const int64_t n = linear.weight->n(), k = linear.weight->k();
  const auto box_rows = static_cast<int32_t>(divided_up(count, 8) * 8);
  const int32_t x_bytes = box_rows * gpu::kStreamRowBytes;
  const int32_t stage_bytes = Shape::kWeightBytes + x_bytes;
  // Products read all rows of a warpgroup, past those of the last step.
  const int32_t tail = 1024 + Shape::kRows * gpu::kStreamRowBytes - x_bytes;
  const int32_t sums = static_cast<int32_t>(sizeof(float)) * Shape::kSumStride * box_rows;
  const int32_t stages = std::clamp((kRingBytes - tail) / stage_bytes, kStagesMin,
                                    static_cast<int32_t>(gpu::kStreamStagesMax));
  const int32_t ring = std::max(stages * stage_bytes, plan.splits > 1 ? sums : 0);
  CHECK(ring + tail <= kSharedMax);
  const StreamArguments arguments{
      .y = linear.y.data + first * linear.y.row_stride,
      .y_stride = linear.y.row_stride / dtype_info(linear.y.dtype).block_bytes,
      .bias = linear.bias,
      .m = static_cast<int32_t>(count),
      .n_out = static_cast<int32_t>(linear.y.columns()),
      .second_half = static_cast<int32_t>(gated ? n / 2 : Shape::kHalfRows),
      .steps = static_cast<int32_t>(divided_up(k, gpu::kStreamColumns)),
      .tiles = plan.tiles,
      .stages = stages,
      .stage_bytes = stage_bytes,
      .activation = gated ? *args.gate : Activation::kSilu,
      .y_is_float = linear.y.dtype == DType::kF32,
      .accumulates = linear.output == LinearOutput::kAccumulate,
      .gated = gated};
  const ConstTensorView weight = linear.weight->matrix();
  gpu::check_launch(gpu::launch_overlapped(
      gpu::linear_stream<T, kTile, kGroups>,
      {.blocks = static_cast<unsigned>(plan.clusters * plan.splits),
       .threads = Shape::kThreads,
       .shared_bytes = ring + tail,
       .cluster = plan.splits},
      gpu::stream_of(context),
      matrix_map(weight.dtype, weight.data, n, k, weight.row_stride, Shape::kHalfRows),
      matrix_map(weight.dtype, linear.x.data + first * linear.x.row_stride, count, k,
                 linear.x.row_stride, box_rows),
      arguments, plan.splits));
}

template <class T, int kTile>
void launch_all(OpContext& context, const StreamArgs& args, const StreamPlan& plan) {
  const int64_t m = args.linear.x.rows();
  for (int64_t first = 0; first < m; first += kStreamRowsMax) {
    const int64_t count = std::min<int64_t>(kStreamRowsMax, m - first);
    if (count <= gpu::kStreamGroupRows) {
      launch_rows<T, kTile, 1>(context, args, plan, first, count);
    } else {
      launch_rows<T, kTile, 2>(context, args, plan, first, count);
    }
  }
}

template <class T>
void launch_plan(OpContext& context, const StreamArgs& args) {
  const StreamPlan plan = plan_stream(args.linear.weight->n(), args.linear.weight->k(),
                                      args.gate != nullptr, context.device.traits().sm_count);
  switch (plan.tile_rows) {
    case 112:
      return launch_all<T, 112>(context, args, plan);
    case 128:
      return launch_all<T, 128>(context, args, plan);
    case 96:
      return launch_all<T, 96>(context, args, plan);
    default:
      CHECK(plan.tile_rows == 64);
      return launch_all<T, 64>(context, args, plan);
  }
}

}  // namespace

// The cut with the least time of its slowest block: bytes of W, and of some rows of x beside them.
StreamPlan plan_stream(int64_t n, int64_t k, bool gated, int32_t sm_count) {
  constexpr int64_t kRowsBeside = 32;
  StreamPlan best;
  int64_t least = INT64_MAX;
  for (const int32_t rows : kTileRows) {
    const int64_t tiles = divided_up(gated ? n / 2 : n, gated ? rows / 2 : rows);
    for (const int32_t splits : kSplits) {
      if (splits > 1 && tiles * splits > sm_count) continue;
      const int64_t clusters = std::min<int64_t>(tiles, sm_count / splits);
      const int64_t cost = divided_up(tiles, clusters) * (rows + kRowsBeside) *
                           divided_up(divided_up(k, gpu::kStreamColumns), splits);
      if (cost >= least) continue;
      least = cost;
      best = {rows, splits, static_cast<int32_t>(tiles), static_cast<int32_t>(clusters)};
    }
  }
  return best;
}

bool stream_fits(const DeviceTraits& traits, const StreamArgs& args) {
  const LinearArgs& linear = args.linear;
  const DType dtype = linear.x.dtype;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         (dtype == DType::kBF16 || dtype == DType::kF16) &&
         linear.weight->matrix().dtype == dtype &&
         (linear.y.dtype == dtype || linear.y.dtype == DType::kF32) &&
         gpu::whole_accesses(dtype, linear.x.columns()) && gpu::rows_aligned(linear.x) &&
         gpu::rows_aligned(linear.weight->matrix()) && gpu::rows_aligned(linear.y) &&
         linear.weight->n() <= INT32_MAX;
}

void run_stream(OpContext& context, const StreamArgs& args) {
  if (args.linear.x.dtype == DType::kF16) return launch_plan<__half>(context, args);
  launch_plan<__nv_bfloat16>(context, args);
}

namespace {

StreamArgs stream_args(const GatedLinearArgs& args) {
  return {.linear = {.x = args.x, .weight = args.weight, .bias = args.bias, .y = args.y},
          .gate = &args.activation};
}
// Alone it is as fast as the library's product without the activation; inside a step its early
// weights delay the norm before it (docs/kernels/notebook.md).
bool gated_stream(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return traits.batch_invariant && stream_fits(traits, stream_args(args));
}
void run_gated_stream(OpContext& context, const GatedLinearArgs& args) {
  run_stream(context, stream_args(args));
}

// Tiles of many rows, without an activation of its own (wgmma.h).
WgmmaArgs wgmma_args(const GatedLinearArgs& args) {
  return {.x = args.x,
          .weight = args.weight,
          .bias = args.bias,
          .activation = args.activation,
          .y = args.y};
}
bool gated_wgmma(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return wgmma_fits(traits, wgmma_args(args));
}
// Measured on an H200 beside the library and an activation: ahead where few products are dropped,
// not between 257 and some 700 rows.
bool gated_wgmma_pays(const DeviceTraits& traits, const GatedLinearArgs& args) {
  if (!gated_wgmma(traits, args)) return false;
  const int64_t m = args.x.rows();
  const double filled = plan_wgmma(m, args.weight->n(), traits.sm_count).filled;
  return m <= kWgmmaRowsMin ? filled > 0.8 : m >= 768 && filled > 0.93;
}
void run_gated_wgmma(OpContext& context, const GatedLinearArgs& args) {
  run_wgmma(context, wgmma_args(args));
}

// Products that other ops share (resident.h, by name only; gemv.h).
bool gated_resident(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return resident_fits(traits, fused(args));
}
void run_gated_resident(OpContext& context, const GatedLinearArgs& args) {
  run_resident(context, fused(args));
}
bool gated_gemv(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return gemv_pays(traits, fused(args));
}
bool gated_gemv_any_size(const DeviceTraits& traits, const GatedLinearArgs& args) {
  return gemv_fits(traits, fused(args));
}
void run_gated_gemv(OpContext& context, const GatedLinearArgs& args) {
  run_gemv(context, fused(args));
}

constexpr std::array kGatedKernels = {
    Kernel<GatedLinearArgs>{"gated_linear/cuda/gemv", gated_gemv, run_gated_gemv},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/stream", gated_stream, run_gated_stream},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/wgmma", gated_wgmma_pays, run_gated_wgmma}};
constexpr std::array kGatedVariants = {
    Kernel<GatedLinearArgs>{"gated_linear/cuda/wgmma_any_rows", gated_wgmma, run_gated_wgmma},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/resident", gated_resident, run_gated_resident},
    Kernel<GatedLinearArgs>{"gated_linear/cuda/gemv_any_size", gated_gemv_any_size,
                            run_gated_gemv}};

}  // namespace

std::span<const Kernel<GatedLinearArgs>> gated_linear_cuda_kernels() { return kGatedKernels; }
std::span<const Kernel<GatedLinearArgs>> gated_linear_cuda_variants() { return kGatedVariants; }

}  // namespace headrace
