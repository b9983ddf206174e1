#include "ops/rows/row_gather.h"

namespace headrace {

std::span<const Kernel<RowGatherArgs>> row_gather_cuda_kernels();  // row_gather_cuda.cu
std::span<const Kernel<RowGatherArgs>> row_gather_cpu_kernels();   // row_gather_cpu.cc
std::span<const Kernel<RowGatherArgs>> row_gather_null_kernels();  // null_kernels.cc

namespace {

void check_args(const RowGatherArgs& args) {
  CHECK(args.x.shape.rank() == 2 && args.x.dtype == args.out.dtype);
  CHECK((args.out.shape == Shape{static_cast<int64_t>(args.rows.size()), args.x.columns()}));
}

}  // namespace

KernelSet<RowGatherArgs> row_gather_kernels() {
  static const std::vector<Kernel<RowGatherArgs>> kernels = join_kernels<RowGatherArgs>(
      {row_gather_cuda_kernels(), row_gather_cpu_kernels(), row_gather_null_kernels()});
  return KernelSet<RowGatherArgs>(kernels);
}

OpCost op_cost(const RowGatherArgs& args) {
  return row_op_cost(args.out.rows(), args.out.columns(), 2 * bytes_of(args.out));
}

void row_gather(OpContext& context, const RowGatherArgs& args) {
  check_args(args);
  if (args.rows.empty()) return;
  run_op(context, row_gather_kernels(), args);
}

}  // namespace headrace
