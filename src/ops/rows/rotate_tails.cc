#include "ops/rows/rotate_tails.h"

namespace headrace {

const KernelSet<RotateTailsArgs>& rotate_tails_kernels() {
  static const KernelSet<RotateTailsArgs> set({rotate_tails_cpu_kernels()});
  return set;
}

OpCost op_cost(const RotateTailsArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x));
}

void rotate_tails(OpContext& context, const RotateTailsArgs& args) {
  const int64_t rows = args.x.rows(), pairs = args.cos.columns();
  CHECK(args.x.dtype == DType::kF32 && args.head_dim > 0);
  CHECK(args.x.columns() % args.head_dim == 0 && 2 * pairs <= args.head_dim);
  CHECK((args.cos.shape == Shape{rows, pairs}) && (args.sin.shape == Shape{rows, pairs}));
  if (rows > 0 && pairs > 0) run_op(context, rotate_tails_kernels(), args);
}

}  // namespace headrace
