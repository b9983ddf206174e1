#include "ops/residual_add.h"

namespace headrace {

std::span<const Kernel<ResidualAddArgs>> residual_add_cuda_kernels();  // residual_add_cuda.cu
std::span<const Kernel<ResidualAddArgs>> residual_add_cpu_kernels();   // residual_add_cpu.cc

namespace {

void check_args(const ResidualAddArgs& args) {
  CHECK(args.x.shape.rank() == 2);
  CHECK(args.residual.shape == args.x.shape && args.residual.dtype == args.x.dtype);
}

}  // namespace

KernelSet<ResidualAddArgs> residual_add_kernels() {
  static const std::vector<Kernel<ResidualAddArgs>> kernels =
      join_kernels<ResidualAddArgs>({residual_add_cuda_kernels(), residual_add_cpu_kernels()});
  return KernelSet<ResidualAddArgs>(kernels);
}

void residual_add(OpContext& context, const ResidualAddArgs& args) {
  check_args(args);
  if (args.x.rows() == 0) return;
  residual_add_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
