#include "ops/rows/row_gather_sum.h"

namespace headrace {
namespace {

void check_args(const RowGatherSumArgs& args) {
  CHECK(args.x.dtype == args.out.dtype && args.x.shape.rank() == 2 && args.out.shape.rank() == 2);
  CHECK(args.x.columns() == args.out.columns());
  CHECK(args.scales.empty() || std::ssize(args.scales) == args.x.rows());
  CHECK(args.out.rows() > 0 && std::ssize(args.places) % args.out.rows() == 0);
}

}  // namespace

const KernelSet<RowGatherSumArgs>& row_gather_sum_kernels() {
  static const KernelSet<RowGatherSumArgs> set(
      {row_gather_sum_cuda_kernels(), row_gather_sum_cpu_kernels()});
  return set;
}

OpCost op_cost(const RowGatherSumArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(), bytes_of(args.x) + bytes_of(args.out));
}

void row_gather_sum(OpContext& context, const RowGatherSumArgs& args) {
  if (args.out.rows() == 0) return;
  check_args(args);
  run_op(context, row_gather_sum_kernels(), args);
}

}  // namespace headrace
