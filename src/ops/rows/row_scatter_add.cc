#include "ops/rows/row_scatter_add.h"

namespace headrace {
namespace {

void check_args(const RowScatterAddArgs& args) {
  CHECK(args.x.dtype == DType::kF32 && args.out.dtype == DType::kF32);
  CHECK((args.x.shape == Shape{static_cast<int64_t>(args.rows.size()), args.out.columns()}));
  CHECK(args.scales.size() == args.rows.size());
}

}  // namespace

const KernelSet<RowScatterAddArgs>& row_scatter_add_kernels() {
  static const KernelSet<RowScatterAddArgs> set({row_scatter_add_cpu_kernels()});
  return set;
}

OpCost op_cost(const RowScatterAddArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 3 * bytes_of(args.x));
}

void row_scatter_add(OpContext& context, const RowScatterAddArgs& args) {
  check_args(args);
  if (args.rows.empty()) return;
  run_op(context, row_scatter_add_kernels(), args);
}

}  // namespace headrace
