#include "ops/row_gather.h"

namespace headrace {

std::span<const Kernel<RowGatherArgs>> row_gather_cuda_kernels();  // row_gather_cuda.cu
std::span<const Kernel<RowGatherArgs>> row_gather_cpu_kernels();   // row_gather_cpu.cc

namespace {

void check_args(const RowGatherArgs& args) {
  CHECK(args.x.shape.rank() == 2 && args.x.dtype == args.out.dtype);
  CHECK((args.out.shape == Shape{static_cast<int64_t>(args.rows.size()), args.x.columns()}));
}

}  // namespace

KernelSet<RowGatherArgs> row_gather_kernels() {
  static const std::vector<Kernel<RowGatherArgs>> kernels =
      join_kernels<RowGatherArgs>({row_gather_cuda_kernels(), row_gather_cpu_kernels()});
  return KernelSet<RowGatherArgs>(kernels);
}

void row_gather(OpContext& context, const RowGatherArgs& args) {
  check_args(args);
  if (args.rows.empty()) return;
  row_gather_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
