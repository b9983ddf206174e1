#include "ops/linear/lora_linear.h"

#include <iterator>

#include <fmt/format.h>

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

}  // namespace

const KernelSet<LoraLinearArgs>& lora_linear_kernels() {
  static const KernelSet<LoraLinearArgs> set({lora_linear_cpu_kernels()});
  return set;
}

int64_t lora_linear_workspace_bytes(int64_t rows, int64_t ranks) {
  return rows * ranks * static_cast<int64_t>(sizeof(float));
}

OpCost op_cost(const LoraLinearArgs& args) {
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
  CHECK(args.x.dtype == DType::kF32 && args.y.dtype == DType::kF32);
  CHECK(args.x.rows() == args.y.rows());
  for (const LoraGroup& group : args.groups) {
    CHECK(!group.rows.empty() && group.rows.front() >= args.first_row);
    CHECK(group.rows.back() - args.first_row < args.x.rows());
    for (const LoraFactor& factor : group.factors) check_factor(args, factor);
  }
  if (args.groups.empty()) return;
  run_op(context, lora_linear_kernels(), args);
}

}  // namespace headrace
