#include "ops/linear/lora_linear.h"

#include <iterator>

#include <fmt/format.h>

#include "ops/linear/lora_layout.h"

namespace headrace {
namespace {

void check_factor(const LoraLinearArgs& args, const LoraFactor& factor) {
  const DType dtype = factor.a.dtype;
  CHECK(dtype == DType::kF32 || dtype == DType::kF16);
  CHECK(factor.b.dtype == dtype && factor.a.columns() == args.x.columns());
  CHECK((factor.b.shape ==
         Shape{(factor.columns + kLoraPad - 1) / kLoraPad, factor.a.rows() * kLoraPad}));
  CHECK(factor.first_column >= 0 && factor.first_column + factor.columns <= args.y.columns());
  CHECK(factor.a.row_stride % (kLoraPad * dtype_info(dtype).block_bytes) == 0);
}

void check_groups(const LoraLinearArgs& args) {
  CHECK(args.x.dtype == DType::kF32);
  for (const LoraGroup& group : args.groups) {
    CHECK(!group.rows.empty() && group.rows.front() >= args.first_row);
    CHECK(group.rows.back() - args.first_row < args.x.rows());
    for (const LoraFactor& factor : group.factors) check_factor(args, factor);
  }
}

void check_places(const LoraLinearArgs& args) {
  CHECK(args.slots != nullptr && args.slots->dtype == args.x.dtype);
  CHECK(args.places.size() <= kLoraPlacesMax && args.first_row == 0);
  for (const LoraPlace& place : args.places) {
    CHECK(place.first_column >= 0 && place.first_column + place.columns <= args.y.columns());
    CHECK(place.index >= 0 && place.index < args.slots->factor_count);
  }
}

// Which rows a task has is known on the device alone: all that it may have.
OpCost tasks_cost(const LoraLinearArgs& args) {
  OpCost cost{.shape = fmt::format("{} x {}, {} tasks of adapters", args.y.columns(),
                                   args.x.columns(), args.tasks.size()),
              .rows = args.x.rows(),
              .type = dtype_name(args.x.dtype)};
  for (const LoraPlace& place : args.places) {
    const int64_t width = args.x.columns() + place.columns;
    cost.flops += 2 * cost.rows * args.slots->rank_max * width;
    cost.bytes += std::ssize(args.tasks) * args.slots->rank_max * width *
                  dtype_info(args.x.dtype).block_bytes;
  }
  return cost;
}

}  // namespace

const KernelSet<LoraLinearArgs>& lora_linear_kernels() {
  static const KernelSet<LoraLinearArgs> set(
      {lora_linear_cuda_kernels(), lora_linear_cpu_kernels()});
  return set;
}

int64_t lora_tasks_workspace_bytes(int64_t tasks, int64_t columns, int64_t factors,
                                   int32_t rank_max) {
  const int64_t ranks = factors * lora_rank_tiles(rank_max) * kLoraTileRanks;
  return lora_splits(columns) * tasks * kLoraTaskRows * ranks * static_cast<int64_t>(sizeof(float));
}

int64_t lora_linear_workspace_bytes(int64_t rows, int64_t ranks) {
  return rows * ranks * static_cast<int64_t>(sizeof(float));
}

OpCost op_cost(const LoraLinearArgs& args) {
  if (args.slots != nullptr) return tasks_cost(args);
  OpCost cost{.shape = fmt::format("{} x {}, {} adapters", args.y.columns(), args.x.columns(),
                                   args.groups.size()),
              .type = "f32"};
  for (const LoraGroup& group : args.groups) {
    const int64_t rows = std::ssize(group.rows);
    cost.rows += rows;
    for (const LoraFactor& factor : group.factors) {
      const int64_t width = factor.a.columns() + factor.columns;
      cost.flops += 2 * rows * factor.a.rows() * width;
      cost.bytes += bytes_of(factor.a) + bytes_of(factor.b) +
                    rows * (width + factor.columns) * static_cast<int64_t>(sizeof(float));
    }
  }
  return cost;
}

void lora_linear(OpContext& context, const LoraLinearArgs& args) {
  CHECK(args.x.dtype == args.y.dtype && args.x.rows() == args.y.rows());
  if (args.slots != nullptr) {
    check_places(args);
    if (args.tasks.empty() || args.places.empty() || args.x.rows() == 0) return;
  } else {
    check_groups(args);
    if (args.groups.empty()) return;
  }
  run_op(context, lora_linear_kernels(), args);
}

}  // namespace headrace
