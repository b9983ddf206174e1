#include "ops/rows/residual_add.h"

namespace headrace {
namespace {

void check_args(const ResidualAddArgs& args) {
  CHECK(args.x.shape.rank() == 2);
  CHECK(args.residual.shape == args.x.shape && args.residual.dtype == args.x.dtype);
}

}  // namespace

const KernelSet<ResidualAddArgs>& residual_add_kernels() {
  static const KernelSet<ResidualAddArgs> set(
      {residual_add_cuda_kernels(), residual_add_cpu_kernels()});
  return set;
}

OpCost op_cost(const ResidualAddArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(),
                     2 * bytes_of(args.x) + bytes_of(args.residual));
}

void residual_add(OpContext& context, const ResidualAddArgs& args) {
  check_args(args);
  if (args.x.rows() == 0) return;
  run_op(context, residual_add_kernels(), args);
}

}  // namespace headrace
