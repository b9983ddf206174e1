#include <algorithm>
#include <array>

#include "ops/linear/wgmma.cuh"
#include "ops/linear/wgmma.h"
#include "ops/tensor_map.cuh"

namespace headrace {
namespace {

using gpu::WgmmaArguments;

int64_t divided_up(int64_t a, int64_t b) { return (a + b - 1) / b; }

// A matrix of 16-bit elements, rows of columns; boxes of 64 columns.
CUtensorMap matrix_map(const ConstTensorView& matrix, int32_t box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(matrix.columns()),
                              static_cast<cuuint64_t>(matrix.rows())};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(matrix.row_stride)};
  const cuuint32_t box[] = {kWgmmaStep, static_cast<cuuint32_t>(box_rows)};
  static_assert(kWgmmaStep == kWgmmaBoxColumns);
  return gpu::make_tensor_map({matrix.dtype, matrix.data, sizes, strides, box, kWgmmaStep});
}

template <class T, int kTile>
void launch(OpContext& context, const WgmmaArgs& args, const WgmmaPlan& plan) {
  using Shape = WgmmaShape<kTile>;
  constexpr int64_t kOutColumns = Shape::kHalfRows;
  constexpr int kShared = sizeof(gpu::WgmmaShared<kTile>) + 1024;
  static_assert(kShared <= 227 * 1024);
  const int64_t m = args.x.rows(), n = args.weight->n(), k = args.weight->k();
  const WgmmaArguments arguments{
      .bias = args.bias,
      .grid = {static_cast<int32_t>(divided_up(m, kWgmmaClusterRows)),
               static_cast<int32_t>(divided_up(args.y.columns(), kOutColumns))},
      .steps = static_cast<int32_t>(divided_up(k, kWgmmaStep)),
      .second_half = static_cast<int32_t>(n / 2),
      .n_out = static_cast<int32_t>(args.y.columns()),
      .gate = gpu::SigmoidGate::of(args.activation)};
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(
          gpu::linear_wgmma<T, kTile>,
          {.blocks = static_cast<unsigned>(kWgmmaBlocks * plan.clusters),
           .threads = Shape::kThreads,
           .shared_bytes = kShared,
           .cluster = kWgmmaBlocks},
          gpu::stream_of(context), matrix_map(args.weight->matrix(), Shape::kHalfRows),
          matrix_map(args.x, kWgmmaRows), matrix_map(args.y, kWgmmaGroupRows), arguments));
}

template <class T>
void launch_plan(OpContext& context, const WgmmaArgs& args) {
  const WgmmaPlan plan =
      plan_wgmma(args.x.rows(), args.weight->n(), context.device.traits().sm_count);
  if (plan.tile_rows == 128) return launch<T, 128>(context, args, plan);
  CHECK(plan.tile_rows == 256);
  launch<T, 256>(context, args, plan);
}

}  // namespace

bool wgmma_fits(const DeviceTraits& traits, const WgmmaArgs& args) {
  const DType dtype = args.x.dtype;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         !traits.batch_invariant && args.x.rows() >= kWgmmaRowsMin &&
         (dtype == DType::kBF16 || dtype == DType::kF16) && args.y.dtype == dtype &&
         args.weight->is_matrix_of(dtype) && args.weight->n() <= INT32_MAX / 2 &&
         gpu::rows_aligned(args.x) && gpu::rows_aligned(args.weight->matrix()) &&
         gpu::rows_aligned(args.y) && gpu::SigmoidGate::is(args.activation);
}

void run_wgmma(OpContext& context, const WgmmaArgs& args) {
  if (args.x.dtype == DType::kF16) return launch_plan<__half>(context, args);
  launch_plan<__nv_bfloat16>(context, args);
}

}  // namespace headrace
