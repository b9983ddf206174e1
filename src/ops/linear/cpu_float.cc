#include "ops/linear/cpu_float.h"

#include <algorithm>

#include "base/round_up.h"

namespace headrace {
namespace {

constexpr int64_t kAlignment = 256;  // of a piece of the workspace
// Staged values below which waking a thread costs more (about 2 us) than it saves.
constexpr int64_t kSerialValues = 25'000;
constexpr int64_t kRowUnitMax = 16, kColumnUnitMax = 32, kValueBytesMax = 4;  // of all kernels

bool has_segment(const LinearWeight& weight, DType dtype) {
  return std::ranges::any_of(weight.segments(), [&](const LinearWeight::Segment& segment) {
    return segment.dtype == dtype;
  });
}

const LinearFloatKernel& kernel_of(const LinearFloatKernels& kernels, DType dtype) {
  switch (dtype) {
    case DType::kF32:
      return *kernels.f32;
    case DType::kF16:
      return *kernels.f16;
    case DType::kBF16:
      return *kernels.bf16;
    default:
      CHECK_MSG(false, "no float type");
      __builtin_unreachable();
  }
}

const std::byte* rows_of(const StagedFloats& staged, DType dtype) {
  if (dtype == DType::kF32) return staged.f32;
  return dtype == DType::kF16 ? staged.f16 : staged.bf16;
}

}  // namespace

int64_t staged_row_bytes(const LinearFloatKernel& kernel, int64_t k) {
  return round_up(k, kernel.column_unit) * kernel.value_bytes;
}

const std::byte* stage_rows(OpContext& context, const ConstTensorView& x,
                            const LinearFloatKernel& kernel) {
  const int64_t m = x.rows(), k = x.columns();
  const int64_t row_bytes = staged_row_bytes(kernel, k);
  std::byte* out = context.workspace.take(round_up(m, kernel.row_unit) * row_bytes);
  const int64_t stride = x.row_stride / int64_t{sizeof(float)};
  const auto stage_tiles = [&](int64_t first, int64_t last) {
    for (int64_t row = first * kernel.tile_rows; row < last * kernel.tile_rows && row < m;
         row += kernel.tile_rows) {
      const int64_t rows = std::min<int64_t>(kernel.tile_rows, m - row);
      kernel.stage(f32_row(x, row), stride, rows, k, out + row * row_bytes);
    }
  };
  const int64_t tiles = (m + kernel.tile_rows - 1) / kernel.tile_rows;
  if (m * k < kSerialValues) {
    stage_tiles(0, tiles);
  } else {
    context.device.pool().parallel_rows(tiles, 1, stage_tiles);
  }
  return out;
}

StagedFloats stage_floats(OpContext& context, const LinearArgs& args,
                          const LinearFloatKernels& kernels) {
  StagedFloats staged;
  if (has_segment(*args.weight, DType::kF32)) {
    staged.f32 = stage_rows(context, args.x, *kernels.f32);
  }
  if (has_segment(*args.weight, DType::kF16)) {
    const bool alike = kernels.f16->stage == kernels.f32->stage;
    staged.f16 =
        alike && staged.f32 != nullptr ? staged.f32 : stage_rows(context, args.x, *kernels.f16);
  }
  if (has_segment(*args.weight, DType::kBF16)) {
    staged.bf16 = stage_rows(context, args.x, *kernels.bf16);
  }
  return staged;
}

int64_t staged_float_bytes(int64_t m, const LinearWeight& weight) {
  const int64_t bytes =
      round_up(m, kRowUnitMax) * round_up(weight.k(), kColumnUnitMax) * kValueBytesMax + kAlignment;
  int64_t total = 0;
  for (const DType dtype : {DType::kF32, DType::kF16, DType::kBF16}) {
    if (has_segment(weight, dtype)) total += bytes;
  }
  return total;
}

void run_float_groups(const LinearArgs& args, const LinearFloatKernels& kernels,
                      const StagedFloats& staged, const LinearWeight::Segment& segment,
                      int64_t first, int64_t last) {
  if (first == last) return;
  const int64_t column = segment.first_row + first * kLinearGroupRows;
  const LinearRange range{
      .weight = reinterpret_cast<const unsigned char*>(segment.data + first * segment.group_bytes),
      .group_count = last - first,
      .group_bytes = segment.group_bytes,
      .k = args.x.columns(),
      .x = rows_of(staged, segment.dtype),
      .row_count = args.x.rows(),
      .y = f32_row(args.y, 0) + column,
      .y_stride = args.y.row_stride / int64_t{sizeof(float)},
      .bias = args.bias == nullptr ? nullptr : args.bias + column,
      .column_count = segment.row_count - first * kLinearGroupRows,
      .accumulate = args.output == LinearOutput::kAccumulate};
  kernel_of(kernels, segment.dtype).range(&range);
}

int64_t group_multiple(const LinearFloatKernels& kernels, DType dtype) {
  return is_quantised(dtype) ? 1 : kernel_of(kernels, dtype).group_multiple;
}

}  // namespace headrace
