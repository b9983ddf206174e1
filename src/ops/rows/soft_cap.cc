#include "ops/rows/soft_cap.h"

namespace headrace {
namespace {

void check_args(const SoftCapArgs& args) { CHECK(args.x.shape.rank() == 2 && args.cap > 0.0f); }

}  // namespace

const KernelSet<SoftCapArgs>& soft_cap_kernels() {
  static const KernelSet<SoftCapArgs> set({soft_cap_cuda_kernels(), soft_cap_cpu_kernels()});
  return set;
}

OpCost op_cost(const SoftCapArgs& args) {
  return row_op_cost(args.x.rows(), args.x.columns(), 2 * bytes_of(args.x));
}

void soft_cap(OpContext& context, const SoftCapArgs& args) {
  check_args(args);
  CHECK(args.x.dtype == DType::kF32 || is_activation(context.device, args.x.dtype));
  if (args.x.rows() == 0) return;
  run_op(context, soft_cap_kernels(), args);
}

}  // namespace headrace
