#include "ops/rows/norm_add.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const NormAddArgs& args) {
  CHECK(args.x.shape.rank() == 2 && is_activation(context.device, args.x.dtype));
  CHECK(args.y.shape == args.x.shape && args.y.dtype == args.x.dtype);
  CHECK(args.weight != nullptr && args.group > 0 && args.x.columns() % args.group == 0);
}

}  // namespace

const KernelSet<NormAddArgs>& norm_add_kernels() {
  static const KernelSet<NormAddArgs> set({norm_add_cuda_kernels(), norm_add_cpu_kernels()});
  return set;
}

OpCost op_cost(const NormAddArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x) + bytes_of(args.y));
}

void norm_add(OpContext& context, const NormAddArgs& args) {
  check_args(context, args);
  if (args.x.rows() == 0) return;
  run_op(context, norm_add_kernels(), args);
}

}  // namespace headrace
