#include "ops/rows/scale_rows.h"

namespace headrace {

const KernelSet<ScaleRowsArgs>& scale_rows_kernels() {
  static const KernelSet<ScaleRowsArgs> set({scale_rows_cuda_kernels(), scale_rows_cpu_kernels()});
  return set;
}

OpCost op_cost(const ScaleRowsArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x) + bytes_of(args.added));
}

void scale_rows(OpContext& context, const ScaleRowsArgs& args) {
  const bool adds = args.added.data != nullptr;
  CHECK(args.x.shape.rank() == 2 && is_activation(context.device, args.x.dtype));
  if (adds) CHECK(args.added.shape == args.x.shape && args.added.dtype == args.x.dtype);
  if (args.x.rows() == 0 || (!adds && args.scale == 1.0f && args.divisor == 1.0f)) return;
  run_op(context, scale_rows_kernels(), args);
}

}  // namespace headrace
