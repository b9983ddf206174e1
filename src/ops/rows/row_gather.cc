#include "ops/rows/row_gather.h"

namespace headrace {
namespace {

void check_args(const OpContext& context, const RowGatherArgs& args) {
  CHECK(args.x.shape.rank() == 2 && args.x.dtype == args.out.dtype);
  const int64_t rows = args.rows.empty() ? args.x.rows() : static_cast<int64_t>(args.rows.size());
  CHECK((args.out.shape == Shape{rows, args.x.columns()}));
  if (args.scales.empty()) return;
  CHECK(std::ssize(args.scales) == rows && is_activation(context.device, args.x.dtype));
}

}  // namespace

const KernelSet<RowGatherArgs>& row_gather_kernels() {
  static const KernelSet<RowGatherArgs> set(
      {row_gather_cuda_kernels(), row_gather_cpu_kernels(), row_gather_null_kernels()});
  return set;
}

OpCost op_cost(const RowGatherArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(), 2 * bytes_of(args.out));
}

void row_gather(OpContext& context, const RowGatherArgs& args) {
  if (args.out.rows() == 0) return;
  check_args(context, args);
  run_op(context, row_gather_kernels(), args);
}

}  // namespace headrace
