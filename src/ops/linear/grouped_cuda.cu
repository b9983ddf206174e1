#include <algorithm>
#include <array>

#include "ops/linear/grouped.cuh"
#include "ops/linear/grouped.h"
#include "ops/tensor_map.cuh"

namespace headrace {
namespace {

using FewTiles = GroupedShape<1, 128, 1>;
using ManyTiles = GroupedShape<2, 256, 2>;

// All experts' matrices, boxes of 64 columns and half a tile's rows.
CUtensorMap bank_map(const ConstTensorView& bank, int32_t box_rows) {
  const cuuint64_t sizes[] = {static_cast<cuuint64_t>(bank.columns()),
                              static_cast<cuuint64_t>(bank.rows())};
  const cuuint64_t strides[] = {static_cast<cuuint64_t>(bank.row_stride)};
  const cuuint32_t box[] = {kWgmmaStep, static_cast<cuuint32_t>(box_rows)};
  return gpu::make_tensor_map({bank.dtype, bank.data, sizes, strides, box, kWgmmaStep});
}

template <class Shape>
gpu::GroupedArguments arguments_of(const GroupedLinearArgs& args) {
  const bool gated = args.gate.has_value();
  const auto n = static_cast<int32_t>(args.expert_rows());
  const int32_t out = gated ? Shape::kHalfRows : Shape::kTile;
  const auto n_out = static_cast<int32_t>(args.y.columns());
  return {.x = args.x.data,
          .x_stride = args.x.row_stride,
          .rows = args.rows.empty() ? nullptr : args.rows.data(),
          .starts = args.starts.data(),
          .bias = args.bias,
          .y = args.y.data,
          .y_stride = args.y.row_stride,
          .experts = static_cast<int32_t>(args.experts()),
          .expert_rows = n,
          .second_half = gated ? n / 2 : Shape::kHalfRows,
          .n_out = n_out,
          .columns = (n_out + out - 1) / out,
          .steps = static_cast<int32_t>(args.x.columns() / kWgmmaStep),
          .gate = gpu::SigmoidGate::of(args.gate.value_or(Activation::kSilu)),
          .clamped = args.gate == Activation::kClampedSwish,
          .starts_are_there = args.follows_another};
}

// As many clusters as run at a time, or as could have a tile.
template <class Shape>
int64_t clusters_of(const gpu::GroupedArguments& arguments, int64_t rows, int32_t sm_count) {
  const int64_t tiles_of_rows =
      std::min<int64_t>(arguments.experts, rows) + rows / Shape::kClusterRows;
  return std::min<int64_t>(tiles_of_rows * arguments.columns, sm_count / Shape::kBlocks);
}

template <class T, class Shape, bool kGated>
void launch_tiles(OpContext& context, const GroupedLinearArgs& args) {
  constexpr int kShared = sizeof(gpu::GroupedShared<Shape>) + 1024;
  static_assert(kShared <= 227 * 1024);
  const gpu::GroupedArguments arguments = arguments_of<Shape>(args);
  const int64_t clusters =
      clusters_of<Shape>(arguments, args.y.rows(), context.device.traits().sm_count);
  gpu::check_launch(
      context.stream,
      gpu::launch_overlapped(gpu::linear_grouped<T, Shape, kGated>,
                             {.blocks = static_cast<unsigned>(Shape::kBlocks * clusters),
                              .threads = Shape::kThreads,
                              .shared_bytes = kShared,
                              .cluster = Shape::kBlocks},
                             gpu::stream_of(context),
                             bank_map(args.weight->matrix(), Shape::kHalfRows), arguments));
}

template <class T, class Shape>
void launch_gated_or_not(OpContext& context, const GroupedLinearArgs& args) {
  if (args.gate) return launch_tiles<T, Shape, true>(context, args);
  launch_tiles<T, Shape, false>(context, args);
}

template <class T>
void launch_grouped(OpContext& context, const GroupedLinearArgs& args, GroupedTiles tiles) {
  switch (tiles) {
    case GroupedTiles::kFew:
      return launch_gated_or_not<T, FewTiles>(context, args);
    case GroupedTiles::kMany:
      return launch_gated_or_not<T, ManyTiles>(context, args);
  }
}

template <GroupedTiles kTiles>
bool tiles_fit(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return grouped_tiles_fit(traits, args) &&
         (kTiles == GroupedTiles::kFew || !traits.batch_invariant);
}
template <GroupedTiles kTiles>
bool tiles_pay(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return tiles_fit<kTiles>(traits, args) &&
         plan_grouped({args.rows_about(), args.experts(), args.expert_rows()}, traits) == kTiles;
}
template <GroupedTiles kTiles>
void run_tiles(OpContext& context, const GroupedLinearArgs& args) {
  run_grouped_tiles(context, args, kTiles);
}

// What tiles take, of a matrix of x's type.
bool tiles_take(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  const DType dtype = args.x.dtype;
  return traits.kind == DeviceKind::kCuda && traits.compute_capability == 90 &&
         (dtype == DType::kBF16 || dtype == DType::kF16) && args.experts() <= kGroupedExpertsMax &&
         args.weight->n() <= INT32_MAX / 2 && args.x.columns() % kWgmmaStep == 0 &&
         args.y.columns() % 8 == 0 && gpu::rows_aligned(args.x) && gpu::rows_aligned(args.y) &&
         args.x.rows() * (args.x.row_stride / gpu::kAccessBytes) <= UINT32_MAX &&
         (!args.gate || gpu::SigmoidGate::is(*args.gate) ||
          *args.gate == Activation::kClampedSwish);
}

// Where tiles take nothing, what `unpacked` makes would be multiplied by a warp an element.
bool blocks_pay(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return grouped_blocks_fit(traits, args) &&
         (traits.batch_invariant || !tiles_take(traits, args) ||
          args.rows_about() <= kGroupedBlocksRowsMax * args.experts());
}

constexpr std::array kGrouped = {
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/blocks", blocks_pay, run_grouped_blocks},
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/unpacked", grouped_unpacked_fits,
                              run_grouped_unpacked},
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/many", tiles_pay<GroupedTiles::kMany>,
                              run_tiles<GroupedTiles::kMany>},
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/few", tiles_fit<GroupedTiles::kFew>,
                              run_tiles<GroupedTiles::kFew>},
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/many_any_rows", tiles_fit<GroupedTiles::kMany>,
                              run_tiles<GroupedTiles::kMany>, Selection::kByName},
    Kernel<GroupedLinearArgs>{"grouped_linear/cuda/blocks_any_rows", grouped_blocks_fit,
                              run_grouped_blocks, Selection::kByName},
    Kernel<GroupedLinearArgs>{.name = "grouped_linear/cuda/any",
                              .supports = grouped_any_fits,
                              .run = run_grouped_any,
                              .is_fallback = true}};

}  // namespace

bool grouped_tiles_fit(const DeviceTraits& traits, const GroupedLinearArgs& args) {
  return tiles_take(traits, args) && args.weight->is_matrix_of(args.x.dtype) &&
         gpu::rows_aligned(args.weight->matrix());
}

void run_grouped_tiles(OpContext& context, const GroupedLinearArgs& args, GroupedTiles tiles) {
  if (args.x.dtype == DType::kF16) return launch_grouped<__half>(context, args, tiles);
  launch_grouped<__nv_bfloat16>(context, args, tiles);
}

KernelTable<GroupedLinearArgs> grouped_linear_cuda_kernels() { return kGrouped; }

}  // namespace headrace
