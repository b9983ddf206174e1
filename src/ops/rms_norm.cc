#include "ops/rms_norm.h"

#include <vector>

namespace headrace {
namespace {

void check_args(const RmsNormArgs& args) {
  CHECK(args.x.shape.rank() == 2);
  CHECK(args.weight != nullptr);
  CHECK(args.out.shape == args.x.shape && args.out.dtype == args.x.dtype);
  if (args.residual.data != nullptr) {
    CHECK(args.residual.shape == args.x.shape && args.residual.dtype == args.x.dtype);
  }
}

std::vector<Kernel<RmsNormArgs>> all_kernels() {
  std::vector<Kernel<RmsNormArgs>> kernels;
  for (const auto& table : {rms_norm_cuda_kernels(), rms_norm_cpu_kernels()}) {
    kernels.insert(kernels.end(), table.begin(), table.end());
  }
  return kernels;
}

}  // namespace

KernelSet<RmsNormArgs> rms_norm_kernels() {
  static const std::vector<Kernel<RmsNormArgs>> kernels = all_kernels();
  return KernelSet<RmsNormArgs>(kernels);
}

void rms_norm(OpContext& context, const RmsNormArgs& args) {
  check_args(args);
  if (args.x.rows() == 0) return;
  rms_norm_kernels().select(context.device, args).run(context, args);
}

}  // namespace headrace
