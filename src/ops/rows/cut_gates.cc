#include "ops/rows/cut_gates.h"

namespace headrace {

const KernelSet<CutGatesArgs>& cut_gates_kernels() {
  static const KernelSet<CutGatesArgs> set({cut_gates_cuda_kernels(), cut_gates_cpu_kernels()});
  return set;
}

OpCost op_cost(const CutGatesArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x));
}

void cut_gates(OpContext& context, const CutGatesArgs& args) {
  CHECK(args.x.shape.rank() == 2 && is_activation(context.device, args.x.dtype));
  if (args.x.rows() == 0) return;
  run_op(context, cut_gates_kernels(), args);
}

}  // namespace headrace
