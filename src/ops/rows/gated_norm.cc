#include "ops/rows/gated_norm.h"

namespace headrace {

const KernelSet<GatedNormArgs>& gated_norm_kernels() {
  static const KernelSet<GatedNormArgs> set({gated_norm_cuda_kernels(), gated_norm_cpu_kernels()});
  return set;
}

OpCost op_cost(const GatedNormArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 3 * bytes_of(args.x));
}

void gated_norm(OpContext& context, const GatedNormArgs& args) {
  CHECK(args.x.dtype == args.gate.dtype);
  CHECK(args.x.shape == args.gate.shape);
  CHECK(args.group > 0 && args.x.columns() % args.group == 0);
  if (args.x.rows() == 0) return;
  run_op(context, gated_norm_kernels(), args);
}

}  // namespace headrace
