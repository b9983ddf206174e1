#include <algorithm>
#include <array>

#include "ops/linear_wgmma.cuh"
#include "ops/linear_wgmma.h"
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

template <class T, int kTile, bool kGated>
void launch(OpContext& context, const WgmmaArgs& args, const WgmmaPlan& plan) {
  using Shape = WgmmaShape<kTile>;
  constexpr int64_t kOutColumns = kGated ? Shape::kHalfRows : kTile;
  constexpr int kShared = sizeof(gpu::WgmmaShared<kTile>) + 1024;
  static_assert(kShared <= 227 * 1024);
  const LinearArgs& linear = args.linear;
  const int64_t m = linear.x.rows(), n = linear.weight->n(), k = linear.weight->k();
  const WgmmaArguments arguments{
      .bias = linear.bias,
      .grid = {static_cast<int32_t>(divided_up(m, kWgmmaClusterRows)),
               static_cast<int32_t>(divided_up(linear.y.columns(), kOutColumns))},
      .steps = static_cast<int32_t>(divided_up(k, kWgmmaStep)),
      .second_half = kGated ? static_cast<int32_t>(n / 2) : Shape::kHalfRows,
      .n_out = static_cast<int32_t>(linear.y.columns()),
      .gate = gpu::SigmoidGate::of(kGated ? *args.gate : Activation::kSilu)};
  gpu::check_launch(gpu::launch_overlapped(
      gpu::linear_wgmma<T, kTile, kGated>,
      {.blocks = static_cast<unsigned>(kWgmmaBlocks * plan.clusters),
       .threads = Shape::kThreads,
       .shared_bytes = kShared,
       .cluster = kWgmmaBlocks},
      gpu::stream_of(context), matrix_map(linear.weight->matrix(), Shape::kHalfRows),
      matrix_map(linear.x, kWgmmaRows), matrix_map(linear.y, kWgmmaGroupRows), arguments));
}

template <class T, bool kGated>
void launch_plan(OpContext& context, const WgmmaArgs& args) {
  const WgmmaPlan plan =
      plan_wgmma(args.linear.x.rows(), args.linear.weight->n(), context.device.traits().sm_count);
  if (plan.tile_rows == 128) return launch<T, 128, kGated>(context, args, plan);
  CHECK(plan.tile_rows == 256);
  launch<T, 256, kGated>(context, args, plan);
}

template <class T>
void launch_type(OpContext& context, const WgmmaArgs& args) {
  if (args.gate != nullptr) return launch_plan<T, true>(context, args);
  launch_plan<T, false>(context, args);
}

}  // namespace

bool wgmma_fits(const DeviceTraits& traits, const WgmmaArgs& args) {
  const LinearArgs& linear = args.linear;
  const DType dtype = linear.x.dtype;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         !traits.batch_invariant && linear.x.rows() >= kWgmmaRowsMin &&
         linear.output == LinearOutput::kStore && (dtype == DType::kBF16 || dtype == DType::kF16) &&
         linear.y.dtype == dtype && linear.weight->matrix().dtype == dtype &&
         linear.weight->n() <= INT32_MAX / 2 && gpu::rows_aligned(linear.x) &&
         gpu::rows_aligned(linear.weight->matrix()) && gpu::rows_aligned(linear.y) &&
         (args.gate == nullptr || gpu::SigmoidGate::is(*args.gate));
}

void run_wgmma(OpContext& context, const WgmmaArgs& args) {
  if (args.linear.x.dtype == DType::kF16) return launch_type<__half>(context, args);
  launch_type<__nv_bfloat16>(context, args);
}

}  // namespace headrace
