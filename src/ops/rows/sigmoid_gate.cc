#include "ops/rows/sigmoid_gate.h"

namespace headrace {

const KernelSet<SigmoidGateArgs>& sigmoid_gate_kernels() {
  static const KernelSet<SigmoidGateArgs> set(
      {sigmoid_gate_cuda_kernels(), sigmoid_gate_cpu_kernels()});
  return set;
}

OpCost op_cost(const SigmoidGateArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 3 * bytes_of(args.x));
}

void sigmoid_gate(OpContext& context, const SigmoidGateArgs& args) {
  CHECK(args.x.dtype == args.gate.dtype);
  CHECK(args.x.rows() == args.gate.rows());
  CHECK(args.gate.columns() > 0 && args.x.columns() % args.gate.columns() == 0);
  if (args.x.rows() == 0) return;
  run_op(context, sigmoid_gate_kernels(), args);
}

}  // namespace headrace
