#include "ops/linear/stream.h"

#include <algorithm>

#include "ops/linear/float8.h"
#include "ops/linear/stream.cuh"
#include "ops/tensor_map.cuh"

namespace headrace {
namespace {

using gpu::StreamArguments;

// 26 MB on the way over 132 blocks: with half of that, blocks that ask and wait in step read 2.6
// TB/s.
constexpr int32_t kRingBytes = 200 << 10;
// Of it, for x of so many groups of rows: it comes from the L2 cache, in some 2 us.
constexpr int32_t kXRingBytes[] = {64 << 10, 96 << 10};
constexpr int32_t kStagesMin = 3;
constexpr int32_t kSharedMax = 227 << 10;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// Rows of x as products take them.
struct StreamRows {
  ConstTensorView x;  // of W's type
  const float* scales = nullptr;
};

CUtensorMap matrix_map(DType dtype, const std::byte* base, int64_t rows, int64_t columns,
                       int64_t row_bytes, int32_t box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(columns), static_cast<cuuint64_t>(rows)};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(row_bytes)};
  const cuuint32_t box[] = {
      static_cast<cuuint32_t>(gpu::kStreamRowBytes / dtype_info(dtype).block_bytes),
      static_cast<cuuint32_t>(box_rows)};
  return gpu::make_tensor_map({dtype, base, sizes, strides, box, kStreamColumns});
}

// Rows [first, first + count) of x.
template <class T, class Operand, int kTile, int kGroups>
void launch_rows(OpContext& context, const StreamArgs& args, const StreamRows& rows,
                 const StreamPlan& plan, int64_t first, int64_t count) {
  using Shape = gpu::StreamShape<kTile, kGroups>;
  const LinearArgs& linear = args.linear;
  const bool gated = args.gate != nullptr;
  const int64_t n = linear.weight->n(), k = linear.weight->k();
  const auto box_rows = static_cast<int32_t>(divided_up(count, 8) * 8);
  constexpr int32_t kColumns = gpu::kStreamRowBytes / static_cast<int32_t>(sizeof(Operand));
  const int32_t x_bytes = box_rows * gpu::kStreamRowBytes;
  const int32_t x_stages = std::clamp(kXRingBytes[kGroups - 1] / x_bytes, kStagesMin,
                                      static_cast<int32_t>(gpu::kStreamXStagesMax));
  // Products read all rows of a warpgroup, past those of the last step.
  const int32_t tail = 1024 + Shape::kRows * gpu::kStreamRowBytes - x_bytes;
  const int32_t sums = static_cast<int32_t>(sizeof(float)) * Shape::kSumStride * box_rows;
  const int32_t x_ring = x_stages * x_bytes;
  const int32_t stages = std::clamp((kRingBytes - tail - x_ring) / Shape::kWeightBytes, kStagesMin,
                                    static_cast<int32_t>(gpu::kStreamStagesMax));
  const int32_t ring = std::max(stages * Shape::kWeightBytes + x_ring, plan.splits > 1 ? sums : 0);
  CHECK(ring + tail <= kSharedMax);
  const StreamArguments arguments{
      .y = linear.y.data + first * linear.y.row_stride,
      .y_stride = linear.y.row_stride / dtype_info(linear.y.dtype).block_bytes,
      .bias = linear.bias,
      .x_scales = rows.scales == nullptr ? nullptr : rows.scales + first,
      .w_scales = linear.weight->row_scales(),
      .m = static_cast<int32_t>(count),
      .n_out = static_cast<int32_t>(linear.y.columns()),
      .second_half = static_cast<int32_t>(gated ? n / 2 : Shape::kHalfRows),
      .steps = static_cast<int32_t>(divided_up(k, kColumns)),
      .step_columns = kColumns,
      .tiles = plan.tiles,
      .stages = stages,
      .x_stages = x_stages,
      .x_bytes = x_bytes,
      .activation = gated ? *args.gate : Activation::kSilu,
      .y_is_float = linear.y.dtype == DType::kF32,
      .accumulates = linear.output == LinearOutput::kAccumulate,
      .gated = gated};
  const ConstTensorView weight = linear.weight->matrix();
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(
          gpu::linear_stream<T, Operand, kTile, kGroups>,
          {.blocks = static_cast<unsigned>(plan.clusters * plan.splits),
           .threads = Shape::kThreads,
           .shared_bytes = ring + tail,
           .cluster = plan.splits},
          gpu::stream_of(context),
          matrix_map(weight.dtype, weight.data, n, k, weight.row_stride, Shape::kHalfRows),
          matrix_map(weight.dtype, rows.x.data + first * rows.x.row_stride, count, k,
                     rows.x.row_stride, box_rows),
          arguments, plan.splits));
}

template <class T, class Operand, int kTile>
void launch_all(OpContext& context, const StreamArgs& args, const StreamRows& rows,
                const StreamPlan& plan) {
  const int64_t m = args.linear.x.rows();
  for (int64_t first = 0; first < m; first += kStreamRowsMax) {
    const int64_t count = std::min<int64_t>(kStreamRowsMax, m - first);
    if (count <= gpu::kStreamGroupRows) {
      launch_rows<T, Operand, kTile, 1>(context, args, rows, plan, first, count);
    } else {
      launch_rows<T, Operand, kTile, 2>(context, args, rows, plan, first, count);
    }
  }
}

template <class T, class Operand>
void launch_plan(OpContext& context, const StreamArgs& args, const StreamRows& rows) {
  const StreamPlan plan = plan_stream(args.linear.weight->n(), args.linear.weight->k(),
                                      args.gate != nullptr, context.device.traits().sm_count);
  switch (plan.tile_rows) {
    case 112:
      return launch_all<T, Operand, 112>(context, args, rows, plan);
    case 128:
      return launch_all<T, Operand, 128>(context, args, rows, plan);
    case 96:
      return launch_all<T, Operand, 96>(context, args, rows, plan);
    default:
      CHECK(plan.tile_rows == 64);
      return launch_all<T, Operand, 64>(context, args, rows, plan);
  }
}

template <class T>
void launch_type(OpContext& context, const StreamArgs& args) {
  const ConstTensorView& x = args.linear.x;
  if (!args.linear.weight->is_matrix_of(DType::kF8)) {
    return launch_plan<T, T>(context, args, {.x = x});
  }
  if (args.rows != nullptr) {
    return launch_plan<T, __nv_fp8_e4m3>(context, args,
                                         {.x = args.rows->numbers, .scales = args.rows->scales});
  }
  const Workspace::Mark mark(context.workspace);
  const Float8Rows rows = make_float8_rows(
      context, x, context.workspace.take(float8_rows_bytes(x.rows(), x.columns())));
  launch_plan<T, __nv_fp8_e4m3>(context, args, {.x = rows.numbers, .scales = rows.scales});
}

}  // namespace

bool stream_fits(const DeviceTraits& traits, const StreamArgs& args) {
  if (traits.kind != DeviceKind::kCuda) return false;
  const LinearArgs& linear = args.linear;
  const DType dtype = linear.x.dtype;
  const bool float8 = linear.weight->is_matrix_of(DType::kF8);
  return traits.compute_capability == 90 && (dtype == DType::kBF16 || dtype == DType::kF16) &&
         (float8 || linear.weight->is_matrix_of(dtype)) &&
         (linear.y.dtype == dtype || linear.y.dtype == DType::kF32) &&
         gpu::whole_accesses(dtype, linear.x.columns()) && gpu::rows_aligned(linear.x) &&
         gpu::rows_aligned(linear.weight->matrix()) && gpu::rows_aligned(linear.y) &&
         linear.weight->n() <= INT32_MAX;
}

void run_stream(OpContext& context, const StreamArgs& args) {
  if (args.linear.x.dtype == DType::kF16) return launch_type<__half>(context, args);
  launch_type<__nv_bfloat16>(context, args);
}

}  // namespace headrace
